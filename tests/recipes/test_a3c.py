"""A3C as a run: alone it repeats to the bit; on nodes each gradient counts once."""

import json
import os
import signal

import numpy as np
import pytest
from tests.recipes.test_dqn_nodes import LEARNER, env_steps, nodes_of, start, wait_until

import muster
from muster.algos.a3c import A3C, A3CConfig
from muster.envs import make_envs
from muster.errors import OptionError
from muster.run import RunDirectory
from muster.workers.gradient_worker import GradientWorker

SMALL = {
    "env_steps": 1_024,
    "stop_at": None,
    "eval_every": 0,
    "eval_episodes": 1,
    "checkpoint_every": 256,
    "num_envs": 8,
    "quiet": True,
}


def lines_of(run):
    """Return the lines of a run's metrics."""
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def worker_of(seed=3, **options):
    envs = make_envs("CartPole-v1", 4, seed)
    spaces = envs.single_observation_space, envs.single_action_space
    return GradientWorker(A3C(A3CConfig(**options), *spaces, seed), envs, seed)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("seed", "workers"),
    [(0, 0), *(pytest.param(n, 6, marks=pytest.mark.slow) for n in range(5))],
)
def test_it_learns_to_balance(tmp_path, seed, workers):
    result = muster.train(
        "a3c", "CartPole-v1", run_dir=str(tmp_path / "run"), seed=seed, workers=workers, quiet=True
    )
    assert result.eval_return_mean >= 475 and result.stopped_by == "target"
    # What was evaluated is what is kept.
    policy = muster.load_policy(tmp_path / "run")
    again = muster.workers.evaluate_policy(policy, "CartPole-v1", 100, result.seed)
    assert again.mean == result.eval_return_mean


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
@pytest.mark.parametrize("model", [None, "lstm"])
def test_alone_a_resumed_run_equals_one_that_was_not_stopped(tmp_path, env, model):
    options = {**SMALL, "model": model}
    whole = muster.train("a3c", env, run_dir=str(tmp_path / "a"), **options)
    half = {**options, "env_steps": 512}
    muster.train("a3c", env, run_dir=str(tmp_path / "b"), **half)
    resumed = muster.resume(tmp_path / "b", env_steps=1_024, quiet=True)
    assert resumed.policy_sha256 == whole.policy_sha256
    assert resumed.env_steps == whole.env_steps == 1_024


def test_a_contribution_changes_no_weight_and_counts_every_step():
    worker = worker_of(rollout=64)
    before = worker.agent.weights.vector.copy()
    made = [worker.contribute(0) for _ in range(4)]
    assert (worker.agent.weights.vector == before).all()
    assert [each.steps for each in made] == [256] * 4
    assert all(np.isfinite(each.gradient).all() and each.gradient.any() for each in made)
    # Random play of 4 times 256 steps: episodes of about 20 steps, each in one contribution.
    episodes = sum(each.episodes.count for each in made)
    length = sum(each.episodes.length_sum for each in made)
    assert episodes > 20 and 4 * 256 - 4 * 200 < length <= 4 * 256


@pytest.mark.timeout(300)
def test_on_nodes_every_gradient_counts_once(tmp_path):
    options = {**SMALL, "env_steps": 8_192}
    result = muster.train("a3c", "CartPole-v1", run_dir=str(tmp_path / "run"), workers=4, **options)
    assert result.env_steps == result.train_iter * 8 * A3CConfig().rollout
    assert result.env_steps >= 8_192
    lags = [each for each in lines_of(tmp_path / "run") if "lag/max" in each]
    assert lags and all(
        0 <= each["lag/min"] <= each["lag/mean"] <= each["lag/max"] for each in lags
    )
    # Of some hundred updates, few come between the weights of a gradient and its use.
    assert lags[-1]["lag/min"] < lags[-1]["train_iter"] // 2


@pytest.mark.parametrize("workers", [0, 3])
@pytest.mark.timeout(300)
def test_the_episodes_of_all_workers_are_one_budget(tmp_path, workers):
    options = {**SMALL, "env_steps": 100_000, "episodes": 40, "workers": workers}
    result = muster.train("a3c", "CartPole-v1", run_dir=str(tmp_path / "run"), **options)
    ended = sum(each.get("collect/episodes", 0) for each in lines_of(tmp_path / "run"))
    assert result.stopped_by == "episodes" and 40 <= ended < 80
    # It has reached its limit: a resumed run is only completed.
    resumed = muster.resume(tmp_path / "run", quiet=True)
    assert (resumed.env_steps, resumed.stopped_by) == (result.env_steps, "episodes")
    assert resumed.policy_sha256 == result.policy_sha256


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"workers": 2}, "a learner, an evaluator and a worker need three processes"),
        ({"episodes": 0}, "episodes=0 is not possible"),
        ({"slots": 2}, "slots"),
        ({"normalize_obs": True}, "normalize_obs"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(tmp_path, options, said):
    with pytest.raises(OptionError, match=said):
        muster.train("a3c", "CartPole-v1", run_dir=str(tmp_path / "run"), **options)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("node", [LEARNER, 2])
def test_a_killed_node_is_replaced_and_the_counters_stay_exact(tmp_path, node):
    limits = ("--env-steps", "400000", "--stop-at", "501", "--eval-every", "0", "--num-envs", "8")
    driver = start(tmp_path, *limits, "--checkpoint-every", "10000", algo="a3c")
    run = tmp_path / "run"
    try:
        wait_until(lambda: env_steps(run) > 30_000)
        os.kill(nodes_of(driver)[node], signal.SIGKILL)
        text, _ = driver.communicate(timeout=300)
    finally:
        driver.kill()
    assert driver.returncode == 0, text
    result = RunDirectory.open(run).read_result()
    assert result["replacements"] == 1
    assert result["env_steps"] == result["train_iter"] * 8 * A3CConfig().rollout >= 400_000
