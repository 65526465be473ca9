"""`Trainer` in one process: a loop of the user's own makes the run that `muster.train` makes."""

import gc
import json
import os
import signal
import threading
import time

import gymnasium as gym
import numpy as np
import pytest

import muster
from muster.errors import MusterError, OptionError, TaskError

CART = "CartPole-v1"
SMALL = {"seed": 3, "workers": 0, "eval_every": 0, "eval_episodes": 1, "stop_at": None}
PPO = {**SMALL, "rollout": 32, "num_envs": 4, "env_steps": 512}
"""Four iterations of 128 steps."""


class Faulty(gym.Wrapper):
    """CartPole-v1, of which one environment does something unusual at its 60th step."""

    act = None

    def __init__(self):
        super().__init__(gym.make(CART))
        self.count = 0

    def step(self, action):
        self.count += 1
        if self.count == 60 and Faulty.act is not None:
            act, Faulty.act = Faulty.act, None
            act()
        return self.env.step(action)


class Wide(gym.ObservationWrapper):
    """CartPole-v1 with a fifth number in each observation."""

    observation_space = gym.spaces.Box(-9, 9, (5,), np.float32)

    def __init__(self):
        super().__init__(gym.make(CART))

    def observation(self, obs):
        return np.append(obs, np.float32(0))


gym.register("TrainerFaulty-v0", Faulty)
gym.register("TrainerWide-v0", Wide)
gym.register("TrainerTwin-v0", "gymnasium.envs.classic_control:CartPoleEnv", max_episode_steps=50)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """Run in an empty directory, and leave no thread behind."""
    monkeypatch.chdir(tmp_path)
    yield
    Faulty.act = None
    gc.collect()
    deadline = time.monotonic() + 20
    while any(each.name == "muster-trainer" for each in threading.enumerate()):
        assert time.monotonic() < deadline, "a run's thread was left behind"
        time.sleep(0.02)


def written(run):
    return json.loads((run / "result.json").read_text())


def slow(*case):
    return pytest.param(*case, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("algo", "env", "options"),
    [
        ("ppo", CART, {"rollout": 32, "num_envs": 4, "env_steps": 512}),
        ("dqn", CART, {"env_steps": 2_500}),
        ("impala", CART, {"env_steps": 3_000}),
        ("a3c", CART, {"env_steps": 2_500}),
        slow("a2c", CART, {"env_steps": 1_024}),
        slow("pqn", CART, {"env_steps": 4_096}),
        slow("appo", CART, {"env_steps": 3_000}),
        slow("apex", CART, {"env_steps": 2_500}),
        slow("r2d2", CART, {"env_steps": 2_500}),
        slow("sac", "Pendulum-v1", {"env_steps": 2_000}),
        slow("ppo", CART, {"env_steps": 8_192, "lag": 1}),
    ],
)
def test_steps_to_the_end_give_the_policy_of_one_call(algo, env, options):
    told = {**SMALL, **options}
    whole = muster.train(algo, env, quiet=True, **told)
    with muster.Trainer(algo, env, **told) as trainer:
        steps = list(trainer)
    result = trainer.result()
    assert result.policy_sha256 == whole.policy_sha256
    assert (result.env_steps, result.train_iter) == (whole.env_steps, whole.train_iter)
    assert result.stopped_by == whole.stopped_by == "steps"
    assert result.eval_return_mean == whole.eval_return_mean
    assert len(steps) > 1 and [each.is_last for each in steps] == [
        *[False] * (len(steps) - 1),
        True,
    ]
    assert steps[-1].env_step == result.env_steps and steps[-1].train_iter == result.train_iter
    assert steps[-1].eval_return == result.eval_return_mean
    assert sum(each.episodes for each in steps) > 0


def test_an_iteration_is_one_rollout_in_step_and_a_line_of_metrics_elsewhere():
    with muster.Trainer("ppo", CART, **PPO) as trainer:
        assert [trainer.step().env_step for _ in range(3)] == [128, 256, 384]
    with muster.Trainer("dqn", CART, **SMALL, env_steps=3_000) as trainer:
        # Its loops are of 64 steps.
        assert [trainer.step().env_step for _ in range(2)] == [1_024, 2_048]
        assert trainer.step(env_steps=99).env_step == 2_176 == trainer.env_step


def test_looking_saving_and_evaluating_change_no_bit():
    whole = muster.train("dqn", CART, quiet=True, **SMALL, env_steps=2_500)
    with muster.Trainer("dqn", CART, **SMALL, env_steps=2_500) as trainer:
        for step in trainer:
            np.random.seed(0)
            if not step.is_last:
                saved = trainer.save()
                assert trainer.evaluate(2) == trainer.evaluate(2)
                assert muster.load_policy(saved).agent.policy_sha256() == (
                    trainer.policy.agent.policy_sha256()
                )
    assert trainer.result().policy_sha256 == whole.policy_sha256
    assert trainer.policy.agent.policy_sha256() == whole.policy_sha256


def test_a_policy_is_a_copy_that_later_steps_do_not_change():
    with muster.Trainer("ppo", CART, **PPO) as trainer:
        first = trainer.policy
        obs = np.zeros((1, 4), np.float32)
        hashes = [first.agent.policy_sha256()]
        for _ in range(2):
            trainer.step()
            hashes.append(trainer.policy.agent.policy_sha256())
        assert len(set(hashes)) == 3 and first.agent.policy_sha256() == hashes[0]
        assert trainer.policy.act(obs).shape == (1,)


def test_a_closed_run_ends_with_the_policy_of_its_last_step_and_resumes_exactly():
    whole = muster.train("ppo", CART, quiet=True, **PPO)
    with muster.Trainer("ppo", CART, **PPO) as trainer:
        trainer.step()
        step = trainer.step()
        seen = trainer.policy.agent.policy_sha256()
    result = trainer.result()
    assert (result.stopped_by, result.env_steps, result.policy_sha256) == ("closed", 256, seen)
    assert step.env_step == 256
    assert written(result.run_dir)["policy_sha256"] == seen
    assert muster.resume(result.run_dir, quiet=True).policy_sha256 == whole.policy_sha256


def test_a_run_of_one_call_goes_on_in_a_trainer_and_back():
    whole = muster.train("dqn", CART, quiet=True, **SMALL, env_steps=3_000)
    half = muster.train("dqn", CART, quiet=True, **SMALL, env_steps=1_200)
    with muster.Trainer.resume(half.run_dir, env_steps=3_000) as trainer:
        assert trainer.env_step == half.env_steps < 2_000 <= trainer.step().env_step
        saved = trainer.save("copy")
    for run in ("copy", saved):
        assert muster.load_policy(run).agent.policy_sha256() == trainer.result().policy_sha256
    for run in (half.run_dir, "copy"):
        assert muster.resume(run, quiet=True).policy_sha256 == whole.policy_sha256
    lines = (half.run_dir / "metrics.jsonl").read_text().splitlines()
    steps = [json.loads(line)["env_step"] for line in lines]
    assert steps == sorted(set(steps))


def test_a_trainer_of_a_run_that_has_reached_its_limit_is_finished():
    done = muster.train("ppo", CART, quiet=True, **PPO)
    with muster.Trainer.resume(done.run_dir) as trainer:
        assert trainer.is_finished and list(trainer) == []
        with pytest.raises(TaskError, match="stopped by 'steps' after 512 steps"):
            trainer.step()
    assert trainer.result().policy_sha256 == done.policy_sha256


def test_a_trainer_closed_before_its_first_step_leaves_a_result():
    with muster.Trainer("ppo", CART, **PPO) as trainer:
        seen = trainer.policy.agent.policy_sha256()
        with pytest.raises(TaskError, match="nothing to save"):
            trainer.save()
        with pytest.raises(TaskError, match="no result yet"):
            trainer.result()
    result = written(trainer.run_dir)
    assert (result["env_steps"], result["stopped_by"], result["policy_sha256"]) == (
        0,
        "closed",
        seen,
    )


def test_an_exception_in_the_block_ends_the_run_and_completes_its_directory():
    with pytest.raises(ZeroDivisionError), muster.Trainer("ppo", CART, **PPO) as trainer:
        trainer.step()
        1 / 0  # noqa: B018
    assert written(trainer.run_dir)["env_steps"] == 128
    assert (trainer.run_dir / "checkpoints" / "step-128").is_dir()


def test_an_error_in_the_run_is_raised_by_step_and_only_once():
    def fail():
        raise RuntimeError("the pole broke")

    Faulty.act = fail
    with (
        pytest.raises(MusterError, match="the pole broke"),
        muster.Trainer("ppo", "TrainerFaulty-v0", **PPO) as trainer,
    ):
        trainer.step()
        trainer.step()
    assert not (trainer.run_dir / "result.json").exists()
    with pytest.raises(MusterError, match="the pole broke"):
        trainer.step()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_a_step_ends_the_block_and_the_run_saves(number):
    Faulty.act = lambda: os.kill(os.getpid(), number)
    expected = KeyboardInterrupt if number == signal.SIGINT else SystemExit
    with (
        pytest.raises(expected),
        muster.Trainer("ppo", "TrainerFaulty-v0", **PPO) as trainer,
    ):
        for _ in trainer:
            pass
    result = trainer.result()
    assert (result.stopped_by, result.stop_signal) == ("signal", number)
    assert 128 < result.env_steps < 512, result
    assert written(trainer.run_dir)["policy_sha256"] == result.policy_sha256
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_an_interrupted_step_of_a_notebook_is_finished_by_the_next_one():
    whole = muster.train("ppo", "TrainerFaulty-v0", quiet=True, **PPO)
    Faulty.act = lambda: os.kill(os.getpid(), signal.SIGINT)
    trainer = muster.Trainer("ppo", "TrainerFaulty-v0", **PPO)
    trainer.step()
    with pytest.raises(KeyboardInterrupt):
        trainer.step()
    saved = trainer.save()
    assert trainer.step().env_step == 256 and saved.name in ("step-128", "step-256")
    assert [each.env_step for each in trainer] == [384, 512]
    assert trainer.close().policy_sha256 == whole.policy_sha256


def test_a_trainer_that_is_dropped_ends_its_run():
    trainer = muster.Trainer("ppo", CART, **PPO)
    trainer.step()
    run = trainer.run_dir
    del trainer  # the fixture waits for its thread
    deadline = time.monotonic() + 20
    while not (run / "result.json").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert written(run)["stopped_by"] == "closed"


def test_mistakes_are_those_of_one_call_and_nothing_is_written(tmp_path):
    for told in ({"algo": "pop"}, {"env": "CartPole-v9"}, {"lr": -1}, {"num_env": 4}):
        given = {"algo": "ppo", "env": CART, **told}
        with pytest.raises(MusterError) as of_trainer:
            muster.Trainer(**given)
        with pytest.raises(MusterError) as of_train:
            muster.train(**given)
        assert str(of_trainer.value) == str(of_train.value)
    with muster.Trainer("ppo", CART, **PPO, run_dir="here") as trainer:
        for call, value in ((trainer.step, 0), (trainer.step, "9"), (trainer.evaluate, 1.5)):
            with pytest.raises(OptionError, match="is not possible"):
                call(value)
        with pytest.raises(MusterError, match="is in use"):
            trainer.save("here")
    assert [each.name for each in tmp_path.iterdir()] == ["here"]


def test_hooks_and_targets_end_the_run_within_a_step():
    def early(ctx):
        ctx.log("own/steps", ctx.env_step)
        ctx.finish = ctx.env_step >= 256

    with muster.Trainer("ppo", CART, **PPO, use=[early]) as trainer:
        first, second = trainer
    assert first.metrics["own/steps"] == 128 and second.is_last
    assert trainer.result().stopped_by == "hook"
    with muster.Trainer("ppo", CART, **{**PPO, "eval_every": 128, "stop_at": 1}) as trainer:
        (only,) = trainer
    assert only.eval_return > 1 and trainer.result().stopped_by == "target"


def test_results_print_on_a_line_and_as_a_table():
    with muster.Trainer("ppo", CART, **PPO) as trainer:
        step = trainer.step()
        assert "128 steps, open" in repr(trainer)
    assert str(step).startswith("steps 128  updates ") and "\n" not in repr(step)
    assert step.losses["entropy"] > 0 and " (" in str(step) and "entropy 0.6" in str(step)
    assert step._repr_html_().count("<tr>") >= 4
    result = trainer.result()
    lines = str(result).splitlines()
    assert lines[0] == "run         ppo on CartPole-v1, seed 3, 0 workers"
    assert lines[4] == "stopped by  closed" and len(lines) == 6
    assert "<td style='text-align:left'>closed</td>" in result._repr_html_()


def test_a_policy_goes_to_another_environment_with_the_same_spaces():
    first = muster.train("ppo", CART, quiet=True, **PPO)
    with muster.Trainer.from_checkpoint(
        first.run_dir, env="TrainerTwin-v0", lr=1e-4, env_steps=128
    ) as trainer:
        assert trainer.policy.agent.policy_sha256() == first.policy_sha256
        assert trainer.step().train_iter > 0
    config = (trainer.run_dir / "config.yaml").read_text()
    assert "lr: 0.0001" in config and "rollout: 32" in config and "env: TrainerTwin-v0" in config
    assert trainer.run_dir != first.run_dir
    again = muster.train(
        "ppo", "TrainerTwin-v0", quiet=True, **{**PPO, "env_steps": 128}, lr=1e-4,
        from_checkpoint=str(first.run_dir),
    )  # fmt: skip
    assert again.policy_sha256 == trainer.result().policy_sha256


def test_a_policy_does_not_go_to_an_environment_with_other_spaces():
    first = muster.train("ppo", CART, quiet=True, **PPO)
    for env, space in (("TrainerWide-v0", "(5,)"), ("Acrobot-v1", "Discrete(3)")):
        with pytest.raises(OptionError) as error:
            muster.Trainer.from_checkpoint(first.run_dir, env=env)
        what, why, fix = error.value.args
        assert env in what and space in why and "(4,)" in why and "same spaces" in fix
    with pytest.raises(OptionError, match="already says where"):
        muster.Trainer.from_checkpoint(first.run_dir, resume=True)
