"""The models at their limits, where the answer can be computed by hand."""

import math
from dataclasses import replace

import pytest

from muster.planning.costs import Affine, RunCosts
from muster.planning.forecast import forecast
from muster.planning.hardware import Hardware
from muster.planning.in_step_model import loop_time
from muster.planning.shape import RunShape
from muster.planning.stragglers import expected_maximum

COUNTS = [1, 2, 4, 8, 64, 1_000]
FREE = Affine()
NETWORK = {"hidden": [64, 64]}
PROGRAMS = ["in_step", "replay", "stream", "gradients"]


def shape(program):
    """Return a run whose numbers are easy: 8 environments, 16 steps each, 4 updates of 32."""
    flight = {"replay": 2, "stream": 2, "gradients": 1, "in_step": 1}[program]
    return RunShape(
        program,
        num_envs=8,
        steps=16,
        rows=32,
        samples_per_step=1.0,
        slots=4 if program == "in_step" else 1,
        learner_slots=4,
        in_flight=lambda actors: flight,
    )


def costs(program, **more):
    """Return costs of 1 ms for each activity of a step."""
    line = Affine(0.0, 1e-3)
    told = {"env": line, "act": line, "learn": line, "rest": line, **more}
    return RunCosts("x", "E-v0", program, NETWORK, **{"slots": 4, **told})


def rates(known, run, hardware, counts=COUNTS, learners=1, grow=True):
    found = forecast(known, run, hardware, counts, learners, grow=grow)
    return [row.env_steps_per_s for row in found]


NOTHING = {"env": FREE, "act": FREE, "learn": FREE, "rest": FREE}
ENOUGH = Hardware(None, 4, math.inf, 0.0)
"""Machines without a link that could limit anything."""


def test_the_expected_maximum_of_normal_numbers_is_that_of_the_tables():
    found = [expected_maximum(count) for count in (1, 2, 3, 10, 100, 1_000)]
    assert found == pytest.approx(
        [0, 1 / math.sqrt(math.pi), 0.8463, 1.5388, 2.5076, 3.2414], abs=1e-4
    )


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_link_without_limits_leaves_only_what_computing_costs(program):
    run, known = shape(program), costs(program, weight_bytes=1e9, sample_bytes=1e6)
    found = rates(known, run, ENOUGH)
    if program == "in_step":  # 4 ms for each step of each worker, however many there are
        assert found == pytest.approx([250 * count for count in COUNTS], rel=1e-4)
    elif program == "gradients":  # 3 ms for each step, then 1 ms of the learner; it takes 1,000/s
        assert found == pytest.approx([min(250 * count, 1_000) for count in COUNTS])
    else:  # 2 ms of an actor for each step, 2 ms of the learner: one actor is enough
        assert found == pytest.approx([500] * len(COUNTS))


@pytest.mark.parametrize("program", ["replay", "stream"])
def test_without_computing_the_link_of_the_learner_is_the_limit(program):
    known = costs(program, **NOTHING, sample_bytes=1_000)
    hardware = Hardware(None, 1, link_gbps=8e-3, latency_us=0.0)  # 1 MB/s
    found = forecast(known, shape(program), hardware, [1, 2, 64])
    assert [row.env_steps_per_s for row in found] == pytest.approx([1_000] * 3)
    assert {row.limited_by for row in found} == {"link"}


def test_without_computing_workers_in_step_send_their_slots_to_each_other_machine():
    known = costs("in_step", **NOTHING, weight_bytes=1_000)
    hardware = Hardware(None, 1, link_gbps=8e-3, latency_us=1_000.0)
    (row,) = forecast(known, shape("in_step"), hardware, [4])
    # 4 updates, 4 slots of 1 kB to 3 machines at 1 MB/s; 7 barriers, 2 ms each; 512 steps
    assert row.env_steps_per_s == pytest.approx(512 / (4 * 4 * 3 * 1e-3 + 7 * 2e-3))
    assert row.limited_by == "link"


def test_a_worker_that_sends_gradients_waits_for_the_way_there_and_back():
    known = costs("gradients", **NOTHING, weight_bytes=1_000)
    hardware = Hardware(None, 1, link_gbps=8e-3, latency_us=500.0)
    (row,) = forecast(known, shape("gradients"), hardware, [1])
    assert row.env_steps_per_s == pytest.approx(128 / (2 * 1e-3 + 2 * 0.5e-3))
    assert row.limited_by == "link"


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("grow", [True, False])
def test_efficiency_is_never_above_1_and_is_1_for_one_worker(program, grow):
    known = costs(
        program,
        env=Affine(1e-4, 1e-3),
        learn=Affine(1e-3, 1e-4),
        barrier_s=1e-4,
        message_s=1e-4,
        variance_per_s=1e-3,
        weight_bytes=1e6,
        sample_bytes=1e3,
        copy_bytes_per_s=1e9,
    )
    run = replace(shape(program), slots=1_000 if not grow else 4)
    for hardware in (Hardware(None, 2), Hardware(1, 2), Hardware(3, 8, 0.1, 500.0)):
        rows = forecast(known, run, hardware, COUNTS, grow=grow)
        assert all(0 < row.efficiency <= 1 for row in rows)
        assert rows[0].efficiency == 1


@pytest.mark.parametrize("program", PROGRAMS)
def test_more_workers_that_bring_their_own_environments_and_cores_are_never_slower(program):
    known = costs(program, barrier_s=1e-5, message_s=1e-6, variance_per_s=1e-4, weight_bytes=1e4)
    found = rates(known, shape(program), Hardware(None, 2), [2**k for k in range(10)])
    assert found == sorted(found)


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize(
    "better",
    [{"link_gbps": 100.0}, {"latency_us": 1.0}, {"cores": 8, "machines": 8}],
    ids=str,
)
def test_better_hardware_is_never_slower(program, better):
    known = costs(program, weight_bytes=1e6, sample_bytes=1e5, barrier_s=1e-5, message_s=1e-5)
    base = Hardware(8, 1, 1.0, 100.0)
    before = rates(known, shape(program), base)
    after = rates(known, shape(program), replace(base, **better))
    assert all(new >= old for new, old in zip(after, before, strict=True))


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("part", ["env", "act", "learn", "rest"])
def test_a_part_that_costs_more_never_makes_a_run_faster(program, part):
    dear = costs(program, **{part: Affine(1e-3, 5e-3)})
    before = rates(costs(program), shape(program), Hardware(None, 2))
    after = rates(dear, shape(program), Hardware(None, 2))
    assert all(new <= old for new, old in zip(after, before, strict=True))


def test_workers_that_share_one_run_divide_what_can_be_divided():
    known = costs("in_step", learn=Affine(4e-3, 1e-3))
    one, two, three, four = (
        loop_time(known, shape("in_step"), workers, Hardware(1, 4)) for workers in (1, 2, 3, 4)
    )
    # 128 steps of 3 ms, and 4 updates of 4 ms and 32 ms
    assert one.seconds == pytest.approx(128 * 3e-3 + 4 * 36e-3)
    assert two.seconds - two.exchange == pytest.approx(64 * 3e-3 + 4 * 20e-3)
    assert three.seconds - three.exchange == pytest.approx(two.seconds - two.exchange), (
        "of 4 slots, one of 3 workers has 2"
    )
    assert four.env == pytest.approx(one.env / 4)


def test_more_processes_than_cores_share_them():
    found = rates(costs("in_step"), shape("in_step"), Hardware(1, 2), [1, 2, 4, 8])
    assert found == pytest.approx([250, 500, 500, 500], rel=1e-3)
    (row,) = forecast(costs("stream"), shape("stream"), Hardware(1, 1), [1])
    assert row.limited_by == "cores" and row.env_steps_per_s == pytest.approx(1_000 / 4)


def test_stragglers_slow_each_barrier_by_the_expected_maximum():
    line = Affine(0.0, 1e-3)
    known = costs("in_step", **{**NOTHING, "env": line, "learn": line}, variance_per_s=1e-4)
    quiet = replace(known, variance_per_s=0.0)
    late, even = (
        loop_time(each, shape("in_step").grown(10), 10, Hardware(None, 10))
        for each in (known, quiet)
    )
    # Each worker collects for 128 ms, and takes 32 ms for each of 4 updates.
    deviations = math.sqrt(1e-4 * 0.128) + 4 * math.sqrt(1e-4 * 0.032)
    assert late.exchange - even.exchange == pytest.approx(deviations * expected_maximum(10))


def test_replicas_divide_the_gradients_of_a_batch_but_not_its_messages():
    known = costs("replay", rest=FREE, act=FREE, env=FREE, message_s=1e-3)
    run, hardware = shape("replay"), Hardware(1, 64)
    found = {k: rates(known, run, hardware, [64], learners=k)[0] for k in (1, 2, 3, 4)}
    assert found[1] == pytest.approx(1_000)
    assert found[2] == pytest.approx(32 / (16e-3 + 3e-3))
    assert found[4] == pytest.approx(32 / (8e-3 + 9e-3))
    assert found[3] < found[2], "of 4 shares, one of 3 learners has 2"


def test_an_actor_with_one_unroll_in_flight_waits_for_the_learner():
    run = replace(shape("stream"), in_flight=lambda actors: 1)
    (row,) = forecast(costs("stream"), run, ENOUGH, [1])
    assert row.env_steps_per_s == pytest.approx(1_000 / 4)
    assert row.limited_by == "pace"


@pytest.mark.parametrize("program", PROGRAMS)
def test_faster_learning_changes_learning_only(program):
    fast = costs(program).with_faster_learning(10)
    assert fast.learn == Affine(0.0, 1e-4)
    assert fast == replace(costs(program), learn=fast.learn)
