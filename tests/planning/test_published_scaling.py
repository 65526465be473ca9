"""Scaling that others have published, predicted from the first points of each.

Frames/s of IMPALA and A3C: table 1 of Espeholt et al. 2018. Minutes of Cleanba for 200 million
frames of Breakout: its README, where `a0_l1,2` is an actor on one GPU and a learner on two, and
`d2` two such groups. docs/plan.md lists all predictions, also those that are far off.
"""

import pytest

from muster.planning.costs import Affine, RunCosts
from muster.planning.forecast import forecast
from muster.planning.hardware import Hardware
from muster.planning.shape import RunShape

NEAR = 0.15
IMPALA = {48: 17e3, 150: 80e3, 375: 200e3, 500: 250e3}
"""CPUs: frames/s. Only the first is without a GPU, and on one machine."""
IMPALA_48_AND_GPU = 21e3
A3C = {32: 6.5e3, 200: 46e3}
CLEANBA_LEARNERS = {1: 121.107, 2: 70.2993, 3: 52.5321, 4: 44.8671, 6: 38.4216}
"""GPUs of the learner, beside one of the actor: minutes."""
CLEANBA_GROUPS = {1: 154.079, 2: 93.3155, 4: 58.4344}
"""Groups of one GPU that acts and learns: minutes."""
CLEANBA_TWO_GROUPS_OF_FOUR = 30.4671
MANY = Hardware(1, 10_000)
FREE = Affine()


def of_actors(program, cpus, frames_per_s):
    """Return a run whose actors are all that costs anything."""
    known = {"act": FREE, "learn": FREE, "rest": FREE}
    env = Affine(0.0, cpus / frames_per_s)
    shape = RunShape(program, num_envs=1, steps=20, rows=20, samples_per_step=1.0)
    return RunCosts("x", "E", program, {}, env=env, **known), shape


def rate(known, shape, actors):
    return forecast(known, shape, MANY, [actors])[0].env_steps_per_s


def error(predicted, published):
    return predicted / published - 1


def of_learners(points):
    """Return a run whose learner takes these minutes, by its number of GPUs: two points."""
    (one, long), (two, short) = points.items()
    divided = (long - short) / (1 / one - 1 / two)
    learn = Affine(long - divided / one, divided)
    known = {"env": FREE, "act": FREE, "rest": FREE}
    shape = RunShape("stream", 1, steps=1, rows=1, samples_per_step=1.0, learner_slots=12)
    return RunCosts("x", "E", "stream", {}, learn=learn, **known), shape


def minutes(known, shape, learners):
    return 1 / forecast(known, shape, MANY, [1], learners)[0].env_steps_per_s


def test_impala_from_its_first_point_with_a_gpu():
    known, shape = of_actors("stream", 150, IMPALA[150])
    assert rate(known, shape, 150) == pytest.approx(IMPALA[150])
    errors = {cpus: error(rate(known, shape, cpus), IMPALA[cpus]) for cpus in (375, 500)}
    assert errors == pytest.approx({375: 0.0, 500: 0.067}, abs=0.001)
    assert all(abs(each) < NEAR for each in errors.values())


def test_impala_without_a_gpu_does_not_tell_how_fast_it_is_with_one():
    """The learner takes CPUs in the first point only, and one point cannot tell how many."""
    known, shape = of_actors("stream", 48, IMPALA[48])
    errors = {cpus: error(rate(known, shape, cpus), IMPALA[cpus]) for cpus in (150, 375, 500)}
    assert errors == pytest.approx({150: -0.34, 375: -0.34, 500: -0.29}, abs=0.01)
    assert error(rate(known, shape, 48), IMPALA_48_AND_GPU) == pytest.approx(-0.19, abs=0.01)


def test_a3c_from_its_first_point():
    known, shape = of_actors("gradients", 32, A3C[32])
    found = error(rate(known, shape, 200), A3C[200])
    assert found == pytest.approx(-0.117, abs=0.001) and abs(found) < NEAR


def test_cleanba_from_one_and_two_gpus_of_the_learner():
    known, shape = of_learners({k: CLEANBA_LEARNERS[k] for k in (1, 2)})
    errors = {k: error(minutes(known, shape, k), each) for k, each in CLEANBA_LEARNERS.items()}
    expected = {1: 0.0, 2: 0.0, 3: 0.016, 4: 0.0, 6: -0.052}
    assert errors == pytest.approx(expected, abs=0.005)


def test_cleanba_from_one_gpu_of_the_learner_lacks_what_cannot_be_divided():
    known, shape = of_learners({1: CLEANBA_LEARNERS[1], 2: CLEANBA_LEARNERS[1] / 2})
    errors = {k: error(minutes(known, shape, k), CLEANBA_LEARNERS[k]) for k in (2, 3, 4, 6)}
    assert errors == pytest.approx({2: -0.14, 3: -0.23, 4: -0.33, 6: -0.47}, abs=0.01)


def of_groups(minutes_of_one, variance_per_s=0.0):
    """Return equal groups, each with environments of its own, that wait for each other."""
    known = {"act": FREE, "learn": FREE, "rest": FREE, "variance_per_s": variance_per_s}
    shape = RunShape("in_step", num_envs=1, steps=1, rows=1, samples_per_step=0.0)
    env = Affine(0.0, minutes_of_one)
    return RunCosts("x", "E", "in_step", {}, env=env, **known), shape


def groups(known, shape, count):
    return 1 / forecast(known, shape, MANY, [count])[0].env_steps_per_s


def test_cleanba_in_groups_needs_the_second_point_to_know_how_long_they_wait():
    known, shape = of_groups(CLEANBA_GROUPS[1])
    errors = {k: error(groups(known, shape, k), CLEANBA_GROUPS[k]) for k in (2, 4)}
    assert errors == pytest.approx({2: -0.17, 4: -0.34}, abs=0.01)
    wait = 2 * CLEANBA_GROUPS[2] / CLEANBA_GROUPS[1] - 1  # of each group, relative to its work
    spread = wait / 0.5642
    known, shape = of_groups(CLEANBA_GROUPS[1], spread**2 * CLEANBA_GROUPS[1])
    assert error(groups(known, shape, 2), CLEANBA_GROUPS[2]) == pytest.approx(0, abs=0.001)
    assert error(groups(known, shape, 4), CLEANBA_GROUPS[4]) == pytest.approx(-0.087, abs=0.005)


def test_cleanba_on_two_groups_of_four_gpus_from_one_of_them():
    known, shape = of_groups(CLEANBA_LEARNERS[3])
    found = error(groups(known, shape, 2), CLEANBA_TWO_GROUPS_OF_FOUR)
    assert found == pytest.approx(-0.138, abs=0.005) and abs(found) < NEAR
