"""Random programs against a plain model of the contract.

Hypothesis makes up a program (middleware of every kind, in groups, with labels, failures and
context keys), muster runs it, and `Walk` goes along the trace with the contract in hand: it refuses
the first event that the contract does not allow there, and knows how `run` must then have ended.
Where the contract leaves one order only (serial mode without `parallel`), one trace alone passes.
"""

import re
import sys
from itertools import combinations

import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st
from model_programs import DRESSES, KEYS, SHAPES, Leaf, calm_leaves, leaves, programs
from model_runs import Log, Meeting, run, task_of
from model_walk import Walk, check, order_of, used_leaves

# ---------------------------------------------------------------------------------- properties


def examples(number, shrink=True):
    """The same examples in every run. Shrinking pays only where a failure comes back for sure."""
    return settings(
        deadline=None,
        max_examples=number,
        derandomize=True,
        report_multiple_bugs=False,
        phases=[Phase.generate, Phase.shrink] if shrink else [Phase.generate],
    )


@pytest.fixture(scope="module", autouse=True)
def threads_that_take_turns_often():
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


one_at_a_time = st.one_of(
    programs(leaves(fault_odds=odds), ("serial",), own_keys=False) for odds in (6, 2)
)
calm = calm_leaves()


@given(one_at_a_time)
@examples(150)
def test_in_serial_mode_the_trace_is_exactly_the_one_the_contract_gives(program):
    check(program, run(program))


@given(programs() | programs(leaves(fault_odds=2)))
@examples(100, shrink=False)
def test_in_serial_mode_parallel_groups_overlap_and_all_else_keeps_its_order(program):
    check(program, run(program))


@given(programs(async_mode=True) | programs(leaves(fault_odds=2), async_mode=True))
@examples(150, shrink=False)
def test_in_async_mode_after_and_the_way_back_keep_their_order(program):
    check(program, run(program))


@given(programs(calm, label_odds=1))
@examples(40)
def test_run_0_does_nothing_and_leaves_the_task_ready(program):
    log = Log()
    with task_of(program, log) as task:
        task.run(0)
        assert not (log.events or log.exits or log.caught)
        log.returned = task.run(program.max_step)
    check(program, log)


@given(programs(calm, label_odds=1) | programs(calm, label_odds=1, async_mode=True))
@examples(100)
def test_filter_labels_and_nothing_else_choose_which_middleware_run(program):
    check(program, run(program))


@given(one_at_a_time, st.data())
@examples(80)
def test_the_model_itself_refuses_a_trace_with_two_events_swapped_or_one_lost(program, data):
    events = run(program).events
    assume(len(events) > 1)
    place = data.draw(st.integers(1, len(events) - 1), label="place")
    swapped = [*events[: place - 1], events[place], events[place - 1], *events[place + 1 :]]
    lost = [*events[:place], *events[place + 1 :]]
    for wrong in (swapped, lost):
        with pytest.raises(AssertionError):
            Walk(program, wrong).to_the_end()


def are_free(before, a, b):
    """Whether there is no order between two leaves."""
    return a not in before[b] and b not in before[a]


@given(programs(calm) | programs(calm, async_mode=True, workers=None), st.data())
@examples(60, shrink=False)
def test_any_two_with_no_order_between_them_run_at_the_same_time(program, data):
    before = order_of(program)
    free = [pair for pair in combinations(before, 2) if are_free(before, *pair)]
    assume(free)
    meeting = Meeting(*data.draw(st.sampled_from(free), label="who meet"))
    check(program, run(program, meeting))


slow = st.builds(
    Leaf,
    shape=st.sampled_from(["plain", "generator"]),
    dress=st.sampled_from(DRESSES),
    pauses=st.integers(1, 3),
)


@given(st.one_of(programs(slow, (), async_mode=True, workers=n) for n in (1, 2)))
@examples(40, shrink=False)
def test_no_more_than_n_async_workers_run_at_the_same_time(program):
    check(program, run(program))  # Walk.workers_suffice


@given(st.one_of(programs(slow, async_mode=True, workers=n) for n in (1, 2)))
@examples(100, shrink=False)
def test_with_few_workers_a_loop_still_waits_for_all_that_it_started(program):
    check(program, run(program))


def writer(shape, way, action, key):
    return Leaf(shape, "function", **{way: ((action, key),)})


writers = st.builds(
    writer,
    st.sampled_from(["generator", "async generator"]),
    st.sampled_from(["forward", "back"]),
    st.sampled_from(["assign", "store"]),
    st.sampled_from(KEYS),
)


@given(programs(writers, kinds=(), own_keys=False, async_mode=True))
@examples(80)
def test_two_that_write_one_key_with_no_order_between_them_are_named_in_a_warning(program):
    assume(used_leaves(program))
    before, texts = order_of(program), run(program).warnings()
    writes = {(name, key) for name, leaf in used_leaves(program).items() for _, key in leaf.forward}
    pairs = [
        (a, b, key)
        for (a, key), (b, other_key) in combinations(sorted(writes), 2)
        if key == other_key and are_free(before, a, b)
    ]

    def told(text, pair):
        return all(re.search(rf"\b{word}\b", text) for word in pair)

    assert all(any(told(text, pair) for text in texts) for pair in pairs), texts
    assert all(any(told(text, pair) for pair in pairs) for text in texts), texts


ODD_ERRORS = {  # and the shapes out of which Python itself lets them pass unchanged
    StopIteration: ["plain"],
    StopAsyncIteration: ["plain", "generator", "async"],
    TimeoutError: SHAPES,
    SystemExit: SHAPES,
    KeyboardInterrupt: SHAPES,
}


@pytest.mark.parametrize("async_mode", [False, True])
@pytest.mark.parametrize("error", ODD_ERRORS)
def test_an_exception_of_any_type_leaves_run_as_it_was_raised(error, async_mode):
    nodes = leaves(fault_odds=1, shapes_that_fail=ODD_ERRORS[error])

    @given(programs(nodes, async_mode=async_mode, error=error))
    @examples(20, shrink=not async_mode)
    def every_program(program):
        check(program, run(program))

    every_program()
