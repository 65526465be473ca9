"""Costs that are derived from a measurement predict that measurement."""

import json

import pytest

from muster.planning.costs import Affine
from muster.planning.derive import CalibratedRun, costs_in_roles, costs_in_step
from muster.planning.forecast import forecast
from muster.planning.hardware import Hardware
from muster.planning.measurement import PARTS, Measurement
from muster.planning.plan import planned
from muster.planning.shape import shape_of
from muster.recipes.settings import resolve

ABOUT = CalibratedRun("ppo", "CartPole-v1", {}, barrier_s=1e-5, message_s=5e-5)


def measured(workers, rate, split, samples, num_envs=8, **more):
    told = {"spread": 0.1, "cores": 2, "busy_elsewhere": 0.0, "sample_bytes": 50.0}
    told |= {"weight_bytes": 36e3, "copy_bytes_per_s": 1e10, "bare_env_s": 8e-6, "bare_act_s": 1e-6}
    parts = dict(zip(PARTS, split, strict=True))
    return Measurement(workers, num_envs, rate, parts, samples, **{**told, **more})


def in_step(workers=1, **more):
    exchange = 0.1 if workers > 1 else 0.0
    return measured(workers, 50_000.0, (0.4, 0.1, 0.3, exchange, 0.2 - exchange), 4.0, **more)


def of_settings(algo, **options):
    settings = resolve(algo, "CartPole-v1", options)
    return settings, shape_of(settings)


@pytest.mark.parametrize("samples", [4.0, 2.5], ids=["all updates", "target_kl skipped some"])
@pytest.mark.parametrize("larger", [None, 70_000.0], ids=["one size", "two sizes"])
def test_one_worker_in_step_is_predicted_exactly(samples, larger):
    settings, shape = of_settings("ppo", num_envs=8)
    split = (0.4, 0.1, 0.3, 0.05, 0.15)  # one worker arrives at barriers, too
    base = measured(1, 50_000.0, split, samples)
    more = larger and measured(1, larger, split, samples, num_envs=16)
    found = costs_in_step(ABOUT, shape, base, more)
    for grow in (True, False):
        result = planned(found, settings, Hardware(1, 2), [1], grow)
        (row,) = result.rows
        assert row.env_steps_per_s == pytest.approx(50_000)
        assert row.updates_per_s == pytest.approx(50_000 * samples / shape.rows)
        assert row.limited_by == "env" and row.shares["learn"] == pytest.approx(0.3)
        assert result.row(1) is row


@pytest.mark.parametrize("workers", [2, 3, 4])
@pytest.mark.parametrize("spread", [0.0, 0.1, 3.0])
def test_several_workers_in_step_are_predicted_exactly(workers, spread):
    settings, shape = of_settings("ppo", num_envs=8)
    found = costs_in_step(ABOUT, shape, in_step(workers, spread=spread))
    result = planned(found, settings, Hardware(1, 2), [workers], grow=False)
    assert result.rows[0].env_steps_per_s == pytest.approx(50_000)
    assert result.rows[0].shares["exchange"] == pytest.approx(0.1)


def test_two_sizes_tell_the_cost_of_a_call_from_that_of_its_rows():
    line = Affine.through(8, 10e-6, 16, 12e-6)
    assert (line.call, line.row) == pytest.approx((8e-6, 0.25e-6))
    assert Affine.through(8, 10e-6, 16, 30e-6) == Affine(0.0, 10e-6 / 8), "noise: none is negative"
    assert Affine.through(8, 10e-6, 16, 9e-6) == Affine(10e-6, 0.0)
    assert all(Affine.through(8, 1.0, 16, t).of(8) == pytest.approx(1) for t in (0.5, 1.5, 2, 3))


ROLES = {
    "dqn": ((0.0, 0.0, 0.6, 0.2, 0.2), 64.0),
    "impala": ((0.0, 0.0, 0.2, 0.7, 0.1), 1.0),
    "a3c": ((0.0, 0.0, 0.0, 0.8, 0.2), 1.0),
}
ALONE = {
    "dqn": (0.1, 0.1, 0.7, 0.0, 0.1),
    "impala": (0.5, 0.2, 0.2, 0.0, 0.1),
    "a3c": (0.4, 0.2, 0.3, 0.0, 0.1),
}


@pytest.mark.parametrize("algo", ROLES)
@pytest.mark.parametrize("actors", [1, 2, 3])
@pytest.mark.parametrize("with_alone", [True, False], ids=["two runs", "one run"])
def test_a_run_with_actors_is_predicted_exactly(algo, actors, with_alone):
    settings, shape = of_settings(algo, num_envs=8)
    split, samples = ROLES[algo]
    together = measured(2 + actors, 9_000.0, split, samples)
    alone = measured(0, 7_000.0, ALONE[algo], samples) if with_alone else None
    found = costs_in_roles(ABOUT, shape, alone, together, cores=2)
    (row,) = forecast(found, shape, Hardware(1, 2), [actors])
    assert row.env_steps_per_s == pytest.approx(9_000)
    assert row.workers == 2 + actors and shape.program == settings.config.PROGRAM


@pytest.mark.parametrize("algo", ROLES)
def test_one_process_tells_what_an_actor_and_a_learner_do(algo):
    _, shape = of_settings(algo, num_envs=8)
    found = costs_in_roles(ABOUT, shape, measured(0, 10_000.0, ALONE[algo], 1.0), None, 2)
    assert found.env.of(8) == pytest.approx(8 * ALONE[algo][0] / 10_000)
    assert found.send_s == 0 and found.rest.row == pytest.approx(0.1 / 10_000)


def test_costs_survive_a_file(tmp_path):
    _, shape = of_settings("ppo")
    found = costs_in_step(ABOUT, shape, in_step())
    again = type(found).from_json(json.loads(json.dumps(found.as_json())))
    assert again == found
