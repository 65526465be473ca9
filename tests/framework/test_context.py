"""CONTRACT, section Context."""

import copy
import gc
import pickle
import warnings
import weakref

import pytest

from muster import AbsentKeyError, Context, MusterError, MusterWarning, Task
from muster.errors import MiddlewareError, OptionError
from muster.framework.context import next_context, shared_keys


class Thing:
    """Something that a weak reference can point to."""


def test_keys_are_attributes_and_attributes_are_keys():
    ctx = Context(a=1)
    ctx.b = 2
    ctx["c"] = 3
    assert (ctx.a, ctx["b"], ctx.c) == (1, 2, 3)
    assert ctx.get("d") is None and ctx.get("d", 4) == 4
    assert ctx.setdefault("d", 5) == 5 and ctx.setdefault("d", 6) == 5
    assert "d" in ctx and "e" not in ctx
    assert list(ctx) == ["total_step", "finish", "a", "b", "c", "d"]
    assert isinstance(ctx, dict)
    del ctx.d
    assert "d" not in ctx
    assert "a" in dir(ctx)
    assert repr(Context()) == "Context({'total_step': 0, 'finish': False})"


def test_a_new_context_has_total_step_and_finish():
    assert Context() == {"total_step": 0, "finish": False}


def test_every_loop_gets_a_new_context_that_holds_only_the_kept_keys():
    seen = []

    def work(ctx):
        seen.append((id(ctx), sorted(ctx)))
        ctx.keep("a")
        ctx.a, ctx.b = 1, 2

    contexts = []  # alive, so that an id is not used twice
    Task().use(work).use(contexts.append).run(3)
    assert len({identity for identity, _ in seen}) == 3
    assert [keys for _, keys in seen] == [
        ["finish", "total_step"],
        ["a", "finish", "total_step"],
        ["a", "finish", "total_step"],
    ]


def test_keep_holds_for_a_key_that_is_set_in_a_later_loop_only():
    ctx = Context()
    ctx.keep("late", "never")
    ctx = next_context(next_context(ctx))
    ctx.late = 7
    ctx = next_context(next_context(ctx))
    assert ctx.late == 7 and "never" not in ctx


def test_drop_ends_keep_from_the_next_loop_on():
    ctx = Context()
    ctx.keep("a")
    ctx.a = 1
    ctx.drop("a")
    assert ctx.a == 1
    assert "a" not in next_context(ctx)


def test_total_step_counts_the_loops_done():
    steps = []
    last = Task().use(lambda ctx: steps.append(ctx.total_step)).run(4)
    assert steps == [0, 1, 2, 3] and last.total_step == 3


@pytest.mark.parametrize("read", [lambda ctx: ctx.train_iter, lambda ctx: ctx["train_iter"]])
def test_reading_a_key_that_was_never_set_says_so_and_names_the_nearest(read):
    ctx = Context(train_ter=1)
    with pytest.raises(AbsentKeyError) as caught:
        read(ctx)
    assert str(caught.value) == (
        "ctx has no 'train_iter': it was never set; did you mean 'train_ter'?"
    )
    assert isinstance(caught.value, AttributeError) and isinstance(caught.value, KeyError)


def test_reading_a_key_with_no_near_name_says_how_to_set_it():
    with pytest.raises(AttributeError, match=r"never set; set it first: ctx\.loss = "):
        Context().loss  # noqa: B018


def test_reading_a_key_that_was_not_kept_says_in_which_loop_it_was_set():
    def train(ctx):
        if ctx.total_step == 41:
            ctx.train_iter = 5
        if ctx.total_step == 44:
            ctx.train_iter  # noqa: B018

    with pytest.raises(
        AttributeError,
        match=r"set in loop 41 but not kept: call ctx\.keep\('train_iter'\)",
    ):
        Task().use(train).run(100)


def test_the_error_for_an_absent_key_survives_a_trip_to_another_process():
    with pytest.raises(AbsentKeyError) as caught:
        next_context(Context(loss=1)).loss  # noqa: B018
    twin = pickle.loads(pickle.dumps(caught.value))
    assert str(twin) == str(caught.value) and isinstance(twin, MusterError)


def test_hasattr_and_getattr_with_a_default_work():
    ctx = Context()
    assert not hasattr(ctx, "x") and getattr(ctx, "x", 3) == 3


def test_setdefault_that_brings_back_a_dropped_value_warns_once_with_the_hint():
    """The tutorial's own trap: its evaluator sees train_iter == -1 for ever."""
    seen = []

    def evaluate(ctx):
        ctx.setdefault("train_iter", -1)
        seen.append(ctx.train_iter)

    def train(ctx):
        ctx.train_iter = 10 + ctx.total_step

    with pytest.warns(MusterWarning) as caught:
        Task().use(evaluate).use(train).run(5)
    assert seen == [-1] * 5
    assert [str(warning.message) for warning in caught] == [
        "ctx.setdefault('train_iter', ...) brings back the default: another value was set in "
        "loop 0 but not kept: call ctx.keep('train_iter')"
    ]
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    ("assigned", "default"), [(-1, -1), (None, None), ([], []), ([64, 64], [64, 64]), ("a", "a")]
)
def test_setdefault_does_not_warn_when_the_dropped_value_was_the_same(assigned, default):
    def work(ctx):
        ctx.setdefault("x", default)
        ctx.x = assigned

    Task().use(work).run(3)


def test_setdefault_does_not_warn_of_what_only_setdefault_ever_set():
    ctx = Context()
    ctx.setdefault("x", 1)
    assert next_context(ctx).setdefault("x", 2) == 2


def test_setdefault_does_not_warn_of_a_loop_before_the_previous_one():
    ctx = Context(x=5)
    ctx = next_context(next_context(ctx))
    assert ctx.setdefault("x", -1) == -1


def test_the_hint_works_for_values_that_cannot_be_compared():
    class Array:
        def __eq__(self, other):
            raise AssertionError("an array has no truth value")

        __hash__ = None

    ctx = Context(x=Array())
    with pytest.warns(MusterWarning, match="another value was set in loop 0"):
        next_context(ctx).setdefault("x", Array())


def test_a_dropped_value_is_not_kept_alive_by_the_hint():
    ctx = Context(batch=Thing())
    reference = weakref.ref(ctx.batch)
    gc.disable()  # it has to go by itself: a batch may be large
    try:
        ctx = next_context(ctx)
        assert reference() is None
    finally:
        gc.enable()


def test_contexts_of_a_run_leave_no_cycles_behind():
    references = []

    def work(ctx):
        thing = Thing()
        references.append(weakref.ref(thing))
        ctx.thing = thing

    gc.collect()
    gc.disable()
    try:
        Task().use(work).run(3)
        assert [reference() for reference in references] == [None, None, None]
    finally:
        gc.enable()


def test_programs_that_invent_key_names_do_not_grow_the_memory():
    ctx = Context()
    for number in range(3000):
        ctx[f"key{number}"] = 1
        ctx = next_context(ctx)
    assert len(ctx._memory.dropped_from) <= 1024
    with pytest.raises(AttributeError, match="set in loop 2999"):
        ctx.key2999  # noqa: B018


def test_the_hint_works_for_more_keys_than_are_remembered():
    ctx = Context({f"key{number}": 1 for number in range(1100)})
    with pytest.warns(MusterWarning, match="another value was set in loop 0"):
        next_context(ctx).setdefault("key0", -1)


def test_share_names_what_is_sent_from_then_on():
    ctx = Context()
    assert shared_keys(ctx) is None
    ctx.share("state_dict")
    ctx = next_context(ctx)
    ctx.share("train_iter")
    assert shared_keys(ctx) == {"state_dict", "train_iter"}


@pytest.mark.parametrize("name", ["values", "keep", "items", "get", "_memory"])
def test_a_name_that_is_a_method_cannot_be_assigned_as_an_attribute(name):
    with pytest.raises(MiddlewareError) as caught:
        setattr(Context(), name, 1)
    assert f"ctx.{name} cannot be assigned" in str(caught.value)
    assert f"try: ctx['{name}'] = ..." in str(caught.value)


def test_a_name_that_is_a_method_may_still_be_a_key():
    ctx = Context()
    ctx["values"] = 1
    assert ctx["values"] == 1 and callable(ctx.values)


@pytest.mark.parametrize(
    "remove",
    [
        lambda ctx: ctx.drop("finish"),
        lambda ctx: ctx.pop("finish"),
        lambda ctx: ctx.__delitem__("finish"),
        lambda ctx: delattr(ctx, "finish"),
    ],
)
def test_finish_and_total_step_cannot_be_removed(remove):
    ctx = Context()
    with pytest.raises(OptionError) as caught:
        remove(ctx)
    assert "is not possible" in str(caught.value) and "try: ctx.finish = ..." in str(caught.value)
    assert "finish" in ctx


def test_clear_and_popitem_leave_finish_and_total_step():
    ctx = Context(a=1, b=2)
    assert ctx.popitem() == ("b", 2)
    ctx.clear()
    assert ctx == {"total_step": 0, "finish": False}
    with pytest.raises(KeyError, match="nothing is left"):
        ctx.popitem()


@pytest.mark.parametrize("method", ["keep", "drop", "share"])
@pytest.mark.parametrize("names", [(), (3,), (["a", "b"],)])
def test_keep_drop_and_share_take_names(method, names):
    with pytest.raises(OptionError) as caught:
        getattr(Context(), method)(*names)
    assert str(caught.value).startswith(f"ctx.{method}() got ")
    assert f'try: ctx.{method}("train_iter"' in str(caught.value)


def test_deleting_an_absent_key_says_why_it_is_absent():
    ctx = next_context(Context(a=1))
    with pytest.raises(AttributeError, match="set in loop 0 but not kept"):
        del ctx.a


@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, lambda ctx: pickle.loads(pickle.dumps(ctx))]
)
def test_a_copy_has_the_values_and_a_life_of_its_own(duplicate):
    ctx = Context(a=[1])
    ctx.keep("a")
    twin = duplicate(ctx)
    assert type(twin) is Context and twin == ctx
    twin.drop("a")
    assert "a" in next_context(ctx) and "a" not in next_context(twin)


def test_plain_values_that_go_through_all_loops_raise_no_warning():
    def work(ctx):
        ctx.keep("n")
        ctx.setdefault("n", 0)
        ctx.n += 1

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Task().use(work).run(10).n == 10


def test_what_is_logged_is_kept_until_it_is_taken():
    ctx = Context()
    ctx.log("loss", 2)
    ctx.log("loss", 0.5)
    following = next_context(ctx)
    following.log("other", True)
    assert following.logged == {"loss": 0.5, "other": 1.0}
    with pytest.raises(OptionError, match="a metric is one number"):
        ctx.log("loss", [1, 2])
