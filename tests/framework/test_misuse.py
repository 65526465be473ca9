"""CONTRACT, section Task: what is passed by mistake is refused with the line that fixes it.

Each message has three lines: what, why, try.
"""

import functools

import pytest

from muster import (
    MiddlewareError,
    MusterError,
    MusterWarning,
    OptionError,
    StepTimer,
    Task,
    TaskError,
)


def collect(buffer, env):
    def _collect(ctx): ...

    return _collect


def train(ctx):
    yield


async def fetch(ctx): ...


async def stream(ctx):
    yield


def factory_of_one(learner):
    def _train(ctx): ...

    return _train


class Save:
    def __call__(self, ctx): ...


def refusal(kind, act):
    with pytest.raises(kind) as caught:
        act()
    assert isinstance(caught.value, MusterError)
    what, why, fix = str(caught.value).split("\n")
    assert why.startswith("  why: ") and len(why) > 10
    assert fix.startswith("  try: ")
    return what, fix.removeprefix("  try: ")


@pytest.mark.parametrize("fn", [train, fetch, stream])
def test_the_result_of_calling_a_middleware_is_refused(fn):
    what, fix = refusal(MiddlewareError, lambda: Task().use(fn({})))
    assert what == f"use() got the result of calling {fn.__name__!r}, not the middleware itself"
    assert fix == f"task.use({fn.__name__})"


@pytest.mark.parametrize("result", [None, 3, "train"])
def test_what_cannot_be_called_is_refused(result):
    what, fix = refusal(MiddlewareError, lambda: Task().use(result))
    assert what == f"use() got {result!r}, which cannot be called"
    assert fix.startswith("task.use(collect(...))")


def test_a_factory_that_was_not_called_is_refused_by_its_arguments():
    what, fix = refusal(MiddlewareError, lambda: Task().use(collect))
    assert what == (
        "use() got 'collect', which cannot be called with ctx alone: "
        "missing a required argument: 'env'"
    )
    assert (
        fix
        == "task.use(collect(...)) if 'collect' makes the middleware, else def collect(ctx): ..."
    )


def test_a_middleware_with_next_as_koa_has_it_is_told_of_yield():
    def log(ctx, next): ...

    what, fix = refusal(MiddlewareError, lambda: Task().use(log))
    assert what.endswith("missing a required argument: 'next'")
    assert fix == "def log(ctx): ...; yield; ..."


def test_a_list_of_middleware_is_refused():
    what, fix = refusal(MiddlewareError, lambda: Task().use([train, fetch]))
    assert what == "use() got a list"
    assert fix == "task.use(a).use(b), or task.serial(a, b)"


def test_a_function_without_arguments_is_refused():
    what, _ = refusal(MiddlewareError, lambda: Task().use(lambda: None))
    assert "cannot be called with ctx alone: too many positional arguments" in what


async def async_factory(learner):
    return factory_of_one(learner)


def partial_factory(learner):
    return functools.partial(collect, learner)


def method_factory(learner):
    return Save().__call__


@pytest.mark.parametrize(
    ("factory", "made"),
    [
        (factory_of_one, "_train"),
        (async_factory, "_train"),
        (partial_factory, "collect"),
        (method_factory, "__call__"),
    ],
)
@pytest.mark.parametrize("timed", [False, True])
def test_a_factory_of_one_argument_is_found_when_it_returns_a_function(factory, made, timed):
    name = factory.__name__
    task = Task().use(factory)
    if timed:
        task.use_step_wrapper(StepTimer(print_per_step=0))
    what, fix = refusal(MiddlewareError, lambda: task.run(1))
    assert what == f"{name!r} returned the function {made!r} when it was called with ctx"
    assert fix == f"task.use({name}(...))"


def test_a_middleware_may_happen_to_return_an_object_that_can_be_called():
    network = Save()
    assert Task().use(lambda ctx: ctx.setdefault("network", network)).run(1).network is network


def test_a_class_in_place_of_an_object_is_refused():
    what, fix = refusal(MiddlewareError, lambda: Task().use(Save))
    assert what == "use() got the class 'Save', not an object of it"
    assert fix == "task.use(Save(...))"


@pytest.mark.parametrize("kind", ["serial", "parallel"])
def test_groups_refuse_what_use_refuses_and_emptiness(kind):
    what, _ = refusal(MiddlewareError, lambda: getattr(Task(), kind)(print, None))
    assert what == f"{kind}() got None, which cannot be called"
    _, fix = refusal(MiddlewareError, lambda: getattr(Task(), kind)(train({})))
    assert fix == f"task.{kind}(train)"
    what, fix = refusal(MiddlewareError, lambda: getattr(Task(), kind)())
    assert what == f"task.{kind}() got no middleware" and fix == f"task.{kind}(collect, train)"


@pytest.mark.parametrize(
    ("method", "argument"), [("use", print), ("use_step_wrapper", lambda fn: fn)]
)
def test_adding_while_running_is_refused(method, argument):
    task = Task()
    task.use(lambda ctx: getattr(task, method)(argument))
    what, fix = refusal(TaskError, lambda: task.run(1))
    assert what == f"{method}() was called while the task runs"
    assert fix == f"call {method}() before task.run()"


def test_running_while_running_is_refused():
    task = Task()
    task.use(lambda ctx: task.run(1))
    assert refusal(TaskError, lambda: task.run(1))[0] == "run() was called while the task runs"


def finished(task):
    task.run(1)


def failed(task):
    with pytest.raises(ZeroDivisionError):
        task.use(lambda ctx: 1 / 0).run(1)


def left(task):
    with task:
        pass


@pytest.mark.parametrize("end", [finished, failed, left])
def test_a_finished_task_refuses_to_run_again(end):
    task = Task().use(lambda ctx: None)
    end(task)
    what, fix = refusal(TaskError, lambda: task.run(1))
    assert what == "this task is finished and cannot run again"
    assert fix == "make a new Task() and use the same middleware"


@pytest.mark.parametrize("max_step", [-1, 1.5, 1e6, "10", True])
def test_max_step_has_to_be_a_whole_number(max_step):
    what, fix = refusal(OptionError, lambda: Task().use(print).run(max_step))
    assert what == f"max_step={max_step!r} is not possible"
    assert fix == "task.run(max_step=int(1e6))"


@pytest.mark.parametrize("workers", [0, -1, 2.0, "4"])
def test_n_async_workers_has_to_be_a_positive_number(workers):
    what, fix = refusal(OptionError, lambda: Task(async_mode=True, n_async_workers=workers))
    assert what == f"n_async_workers={workers!r} is not possible" and fix == "n_async_workers=4"


@pytest.mark.parametrize("async_mode", ["gpu", 4, None])
def test_async_mode_is_true_or_false(async_mode):
    what, _ = refusal(OptionError, lambda: Task(async_mode))
    assert what == f"async_mode={async_mode!r} is not possible"


def test_whole_numbers_of_other_types_are_whole_numbers():
    class Three:
        def __index__(self):
            return 3

    assert Task().use(lambda ctx: None).run(Three()).total_step == 2


def test_a_loop_that_does_nothing_here_is_pointed_out():
    with pytest.warns(MusterWarning, match="no middleware runs here: the labels here are: standa"):
        Task().use(print, filter_labels=["node.1"]).run(2)


def test_a_loop_that_nothing_could_end_is_refused():
    what, _ = refusal(TaskError, lambda: Task().run())
    assert what == "run() would loop forever: no middleware runs here"
    what, _ = refusal(TaskError, lambda: Task().use(print, filter_labels=["node.1"]).run())
    assert what == "run() would loop forever: no middleware runs here"
    assert Task().run(2).total_step == 1, "with max_step an empty loop is fine"


def test_after_something_that_was_not_used_before_is_refused():
    what, fix = refusal(OptionError, lambda: Task().use(train, after=fetch).use(fetch))
    assert what == "after=fetch is not possible for 'train'"
    assert fix == "task.use(fetch), and pass the same object as after"


def test_a_wrapper_has_to_be_callable_and_to_return_something_callable():
    what, _ = refusal(MiddlewareError, lambda: Task().use_step_wrapper(None))
    assert what == "use_step_wrapper() got None, which cannot be called"

    def forgot(fn):
        def wrapped(ctx): ...

    task = Task().use(train).use_step_wrapper(forgot)
    what, fix = refusal(MiddlewareError, lambda: task.run(1))
    assert what == "the step wrapper 'forgot' returned None"
    assert fix == "end 'forgot' with: return wrapped"


@pytest.mark.parametrize("fn", [train, stream, functools.partial(train)])
def test_a_wrapper_that_loses_a_generator_is_found(fn):
    def log(inner):
        def wrapped(ctx):
            inner(ctx)

        return wrapped

    what, fix = refusal(MiddlewareError, lambda: Task().use_step_wrapper(log).use(fn).run(1))
    name = getattr(fn, "__name__", "train")
    assert what == f"a step wrapper lost the generator or coroutine of {name!r}"
    assert fix == "end the wrapper with: return fn(ctx)"


def test_a_group_that_is_called_outside_its_run_says_so():
    group = Task().serial(print)
    what, _ = refusal(TaskError, lambda: next(group({})))
    assert what == "a serial or parallel group was called while its task does not run"
