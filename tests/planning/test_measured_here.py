"""PPO with two workers on a quiet machine, predicted from runs of one process there.

The rates are those of `benchmarks.peers.ppo`: medians of three rounds with 8 environments and with
64, in one process and with two workers on two cores.
"""

import json
from pathlib import Path

import pytest

from muster.planning.derive import CalibratedRun, costs_in_step
from muster.planning.exchange_time import GUESS
from muster.planning.forecast import forecast
from muster.planning.hardware import Hardware
from muster.planning.measurement import PARTS, Measurement
from muster.planning.shape import RunShape

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
FILES = {8: "peers_ppo.json", 64: "peers_ppo_wide.json"}
SPLIT = dict(zip(PARTS, (1.0, 0.0, 0.0, 0.0, 0.0), strict=True))
"""The sum of all parts is all that counts: both sizes have as many calls of each."""


def rate(envs, workers):
    found = json.loads((RESULTS / FILES[envs]).read_text())["steps_per_s"]
    return found[f"muster, {workers} workers"]["median"]


def measured(envs):
    """Return the run of one process; its loops were not timed one by one."""
    sizes = {"sample_bytes": 0.0, "weight_bytes": 36_620.0, "copy_bytes_per_s": 1e10}
    bare = {"bare_env_s": 0.0, "bare_act_s": 0.0}
    told = {"spread": 0.0, "cores": 1, "busy_elsewhere": 0.0, **sizes, **bare}
    return Measurement(0, envs, rate(envs, 0), SPLIT, 4.0, **told)


def shape(envs):
    """Return the recipe of the benchmark: 128 steps, 4 epochs of 4 minibatches, 4 slots."""
    rows = 128 * envs // 4
    return RunShape("in_step", envs, steps=128, rows=rows, samples_per_step=4.0, slots=4)


@pytest.mark.parametrize(("envs", "error"), [(8, 0.02), (64, 0.06)])
def test_two_workers_of_ppo_are_predicted_from_one_process(envs, error):
    run = CalibratedRun("ppo", "CartPole-v1", {}, *GUESS)
    known = costs_in_step(run, shape(8), measured(8), measured(64))
    one, two = forecast(known, shape(envs), Hardware(1, 2), [1, 2], grow=False)
    assert one.env_steps_per_s == pytest.approx(rate(envs, 0))
    found = two.env_steps_per_s / rate(envs, 2) - 1
    assert found == pytest.approx(error, abs=0.02) and abs(found) < 0.15
