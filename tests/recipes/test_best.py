"""`best` plays its score, whatever the algorithm, the engine and the moment of the evaluation."""

import json
import shutil

import pytest

import muster
from muster.run import RunDirectory
from muster.workers import evaluate_policy

EPISODES = 10
PPO = {"num_envs": 8, "rollout": 64, "env_steps": 8_192, "eval_every": 1_024}
DQN = {"env_steps": 6_000, "eval_every": 500}
WAYS = {
    "ppo-serial": ("ppo", {**PPO, "workers": 0}),
    "ppo-nodes": ("ppo", {**PPO, "workers": 2}),
    "ppo-ray": ("ppo", {**PPO, "workers": 2, "engine": "ray"}),
    "dqn-serial": ("dqn", {**DQN, "workers": 0}),
    "dqn-nodes": ("dqn", {**DQN, "workers": 3}),
    "dqn-shards": ("dqn", {**DQN, "workers": 5, "replay_shards": 2}),
    "dqn-ray": ("dqn", {**DQN, "workers": 3, "engine": "ray"}),
}


def check_best(place, way, seed):
    """Train with evaluations and checkpoints in many loops, and replay what was kept."""
    algo, options = WAYS[way]
    every = {"checkpoint_every": 500, "eval_episodes": EPISODES, "stop_at": 501.0}
    muster.train(
        algo, "CartPole-v1", seed=seed, run_dir=str(place), quiet=True, **{**every, **options}
    )
    run = RunDirectory.open(place)
    score, best, last = run.best.score(), run.best.load(), run.checkpoints.load()
    # It has to play what it says in the same episodes, to the last bit.
    again = evaluate_policy(muster.load_policy(place), "CartPole-v1", EPISODES, seed)
    assert again.mean == score == best.meta["evaluated"]
    lines = [json.loads(line) for line in run.metrics.read_text().splitlines()]
    told = [(line["env_step"], line["eval/return"]) for line in lines if "eval/return" in line]
    assert score == max(value for _, value in told)
    first = next(step for step, value in told if value == score)  # of equals, the first is kept
    assert best.step == best.counters["env_step"] == first
    assert last.step >= told[-1][0] and ("replay" in last.parts) == (algo == "dqn")


@pytest.mark.parametrize("way", [way for way in WAYS if "ray" not in way])
def test_the_best_policy_plays_its_score(tmp_path, way):
    check_best(tmp_path / "run", way, seed=17)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("way", WAYS)
def test_the_best_policy_plays_its_score_over_20_seeds(tmp_path, way):
    for seed in range(20):
        check_best(tmp_path / "run", way, seed)
        shutil.rmtree(tmp_path / "run")
