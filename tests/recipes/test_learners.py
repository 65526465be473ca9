"""Several learners: the same policy for any number of them, whoever is killed."""

import json
import os
import signal

import gymnasium as gym
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from tests.recipes.test_dqn_nodes import env_steps, nodes_of, start, wait_until

import muster
from muster.errors import OptionError
from muster.run import RunDirectory

QUIET = {"eval_every": 0, "eval_episodes": 1, "stop_at": None, "quiet": True}
REPLAY = {
    "hidden": (16, 16),
    "buffer_size": 2_000,
    "learning_starts": 64,
    "num_envs": 4,
    "env_steps": 400,
}
SEQUENCES = {"sequence": 8, "overlap": 4, "burn_in": 2, "hidden": (8, 8), "batch_size": 8}
Q_KIND = {**REPLAY, "batch_size": 30, "train_every": 16, "updates_per_train": 4}
UNROLLS = {"hidden": (16, 16), "num_envs": 4, "env_steps": 1_600}


class Rich(CartPoleEnv):
    """CartPole with rewards that cannot be squared."""

    def step(self, action):
        obs, _, terminated, truncated, info = super().step(action)
        return obs, 3e38, terminated, truncated, info


gym.register("Rich-v0", Rich, max_episode_steps=50)

KINDS = {
    "dqn": ("dqn", "CartPole-v1", Q_KIND),
    "sac": ("sac", "Pendulum-v1", {**REPLAY, "batch_size": 64, "env_steps": 200}),
    "impala": ("impala", "CartPole-v1", UNROLLS),
    "ppo": ("ppo", "CartPole-v1", {"env_steps": 4_096}),
}
MORE_KINDS = {
    "dqn that remembers": ("dqn", "CartPole-v1", {**Q_KIND, **SEQUENCES, "model": "gru"}),
    "noisy dqn": ("dqn", "CartPole-v1", {**Q_KIND, "noisy": True, "quantiles": 4}),
    "apex": ("apex", "CartPole-v1", Q_KIND),
    "r2d2": ("r2d2", "CartPole-v1", {**Q_KIND, **SEQUENCES}),
    "redq": ("sac", "Pendulum-v1", {**REPLAY, "critics": 4, "target_critics": 2, "env_steps": 150}),
    "tqc": ("sac", "Pendulum-v1", {**REPLAY, "quantiles": 5, "env_steps": 150}),
    "impala that remembers": ("impala", "CartPole-v1", {**UNROLLS, "model": "lstm"}),
    "appo": ("appo", "CartPole-v1", UNROLLS),
    "a2c": ("a2c", "CartPole-v1", {"env_steps": 4_096}),
    "pqn": ("pqn", "CartPole-v1", {"env_steps": 4_096}),
}


def train(folder, kind, **options):
    algo, env, own = {**KINDS, **MORE_KINDS}[kind]
    return muster.train(algo, env, run_dir=str(folder), **{**QUIET, **own, **options})


def by_replicas(run):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line["train/by_replicas"] for line in lines if "train/by_replicas" in line]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "kind", [*KINDS, *(pytest.param(kind, marks=pytest.mark.slow) for kind in MORE_KINDS)]
)
def test_two_learners_come_to_the_policy_of_one(tmp_path, kind):
    one = train(tmp_path / "one", kind, learners=1)
    two = train(tmp_path / "two", kind, learners=2)
    assert one.policy_sha256 == two.policy_sha256
    assert one.env_steps == two.env_steps and one.train_iter == two.train_iter
    if kind in ("dqn", "sac", "impala"):
        assert 0 < by_replicas(tmp_path / "two")[-1] <= 0.5


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", [{"learners": 4}, {"learners": 3, "engine": "ray"}])
def test_so_do_more_of_them_and_on_ray(tmp_path, kind, options):
    if kind == "ppo":
        options = {**options, "workers": None}
    one = train(tmp_path / "one", kind, learners=1)
    more = train(tmp_path / "more", kind, **options)
    assert one.policy_sha256 == more.policy_sha256


@pytest.mark.timeout(600)
def test_a_run_is_resumed_with_another_number_of_learners(tmp_path):
    whole = train(tmp_path / "whole", "dqn", learners=1, env_steps=640)
    train(tmp_path / "run", "dqn", learners=2, env_steps=320)
    resumed = muster.resume(tmp_path / "run", learners=1, env_steps=640)
    assert resumed.policy_sha256 == whole.policy_sha256


@pytest.mark.timeout(600)
def test_learners_have_actors_and_an_evaluator_beside_them(tmp_path):
    result = train(tmp_path / "run", "dqn", learners=2, workers=3, env_steps=1_000)
    assert result.env_steps >= 1_000 and result.train_iter > 0
    assert by_replicas(tmp_path / "run")[-1] > 0


@pytest.mark.parametrize(
    ("algo", "options", "said"),
    [
        ("dqn", {"learners": 5}, "learners=5 is not possible with learner_slots=4"),
        ("dqn", {"learners": 0}, "learners=0 is not possible"),
        ("ppo", {"learners": 2, "workers": 4}, "learners=2 and workers=4 contradict each other"),
        ("ppo", {"learners": 8, "learner_slots": 8}, "workers=8.*slots=4"),
        ("a3c", {"learners": 2}, "learners=2 is not possible with a3c"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(tmp_path, algo, options, said):
    with pytest.raises(OptionError, match=said):
        muster.train(algo, "CartPole-v1", run_dir=str(tmp_path / "run"), **options)
    assert not (tmp_path / "run").exists()


def test_a_run_whose_batches_are_whole_stays_so(tmp_path):
    train(tmp_path / "run", "dqn", env_steps=160)
    with pytest.raises(OptionError, match=r"the run in .* has learners=None"):
        muster.resume(tmp_path / "run", learners=2)
    train(tmp_path / "cut", "dqn", env_steps=160, learners=1)
    with pytest.raises(OptionError, match="learner_slots"):
        muster.resume(tmp_path / "cut", learner_slots=8)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("node", [0, 1])
def test_a_killed_learner_changes_no_bit(tmp_path, node):
    steps = 6_016
    limits = ("--env-steps", str(steps), "--stop-at", "501", "--eval-every", "0")
    limits += ("--checkpoint-every", "500")
    driver = start(tmp_path, *limits, "--learners", "3", workers=0)
    run = tmp_path / "run"
    try:
        wait_until(lambda: env_steps(run) > 2_000)
        os.kill(nodes_of(driver)[node], signal.SIGKILL)
        text, _ = driver.communicate(timeout=500)
    finally:
        driver.kill()
    assert driver.returncode == 0, text
    result = RunDirectory.open(run).read_result()
    assert result["replacements"] == 1 and result["env_steps"] == steps
    (tmp_path / "alone").mkdir()
    alone = start(tmp_path / "alone", *limits, "--learners", "1", workers=0)
    text, _ = alone.communicate(timeout=300)
    assert alone.returncode == 0, text
    other = RunDirectory.open(tmp_path / "alone" / "run").read_result()
    assert result["policy_sha256"] == other["policy_sha256"]


@pytest.mark.timeout(600)
def test_a_loss_that_is_none_is_said_by_the_learner_not_by_a_replica(tmp_path):
    told = {**QUIET, **Q_KIND, "huber": False, "learners": 2}
    with pytest.raises(muster.NodeError) as caught:
        muster.train("dqn", "Rich-v0", run_dir=str(tmp_path / "run"), **told)
    assert caught.value.role == "learner" and "the loss is inf" in str(caught.value)
