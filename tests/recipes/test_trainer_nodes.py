"""`Trainer` with workers: the gate is in another process, and nothing outlives the block."""

import json
import os
import signal
import sys
import threading
import time
import types

import gymnasium as gym
import pytest

import muster
from muster.engines.local.forkserver import SERVER
from muster.errors import NodeError

CART = "CartPole-v1"
SMALL = {"seed": 3, "eval_every": 0, "eval_episodes": 1, "stop_at": None}
PPO = {**SMALL, "workers": 2, "rollout": 32, "num_envs": 4, "env_steps": 512}

pytestmark = pytest.mark.timeout(300)


def nodes():
    """Return the processes that the fork server has started, in the order of their start."""
    server = SERVER._process
    if server is None or server.poll() is not None:
        return []
    with open(f"/proc/{server.pid}/task/{server.pid}/children") as file:
        return [int(pid) for pid in file.read().split()]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """Run in an empty directory, and leave no process and no thread behind."""
    monkeypatch.chdir(tmp_path)
    yield
    assert nodes() == []
    assert not [each for each in threading.enumerate() if each.name == "muster-trainer"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return the result of one call, in one process."""
    run = tmp_path_factory.mktemp("whole") / "run"
    return muster.train("ppo", CART, quiet=True, run_dir=str(run), **{**PPO, "workers": 0})


def test_steps_of_two_workers_give_the_policy_of_one_call_in_one_process(whole):
    with muster.Trainer("ppo", CART, **PPO) as trainer:
        assert nodes() == []
        first = trainer.step()
        assert first.env_step == 128 and first.losses["entropy"] > 0 and len(nodes()) == 2
        seen = trainer.policy.agent.policy_sha256()
        saved = trainer.save()
        assert muster.load_policy(saved).agent.policy_sha256() == seen
        assert trainer.evaluate(1).episodes == 1
        rest = list(trainer)
    result = trainer.result()
    assert [each.env_step for each in rest] == [256, 384, 512] and rest[-1].is_last
    assert result.policy_sha256 == whole.policy_sha256 and result.stopped_by == "steps"
    assert trainer.policy.agent.policy_sha256() == whole.policy_sha256


def test_a_closed_run_is_resumed_with_another_number_of_workers(whole):
    with muster.Trainer("ppo", CART, **PPO) as trainer:
        trainer.step()
    result = trainer.result()
    assert (result.stopped_by, result.env_steps) == ("closed", 128)
    with muster.Trainer.resume(result.run_dir, workers=0) as trainer:
        trainer.step()
    with muster.Trainer.resume(result.run_dir, workers=2) as trainer:
        list(trainer)
    assert trainer.result().policy_sha256 == whole.policy_sha256


def test_a_worker_that_is_killed_between_two_steps_changes_nothing(whole):
    with muster.Trainer("ppo", CART, **PPO) as trainer:
        trainer.step()
        for pid in nodes()[:1]:
            os.kill(pid, signal.SIGKILL)
        assert trainer.step().env_step == 256
        list(trainer)
    result = trainer.result()
    assert result.policy_sha256 == whole.policy_sha256 and result.replacements == 1


def test_ctrl_c_between_and_within_steps_ends_all_processes_and_saves():
    for within in (False, True):
        with pytest.raises(KeyboardInterrupt), muster.Trainer(
            "ppo", CART, **{**PPO, "env_steps": 10**8}
        ) as trainer:  # fmt: skip
            trainer.step()
            if not within:
                raise KeyboardInterrupt
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
            list(trainer)
        result = trainer.result()
        assert (result.stopped_by, result.stop_signal) == ("signal", signal.SIGINT)
        assert within or result.env_steps == 128
        saved = json.loads((trainer.run_dir / "result.json").read_text())
        assert saved["policy_sha256"] == result.policy_sha256
        assert (trainer.run_dir / "checkpoints" / f"step-{result.env_steps}").is_dir()


def test_a_hook_that_fails_on_a_worker_fails_the_step():
    def fail(ctx):
        if ctx.env_step == 256:
            raise RuntimeError("my hook broke")

    with (
        pytest.raises(NodeError, match="my hook broke"),
        muster.Trainer("ppo", CART, **PPO, use=[fail]) as trainer,
    ):
        trainer.step()
        trainer.step()
    assert not (trainer.run_dir / "result.json").exists()


@pytest.mark.parametrize(
    ("algo", "options"),
    [
        ("dqn", {"workers": 3, "env_steps": 3_000}),
        pytest.param("impala", {"workers": 3, "env_steps": 6_000}, marks=pytest.mark.slow),
        pytest.param("a3c", {"workers": 3, "env_steps": 6_000}, marks=pytest.mark.slow),
        pytest.param("dqn", {"learners": 2, "env_steps": 3_000}, marks=pytest.mark.slow),
    ],
)
def test_learners_with_actors_wait_at_the_gate(algo, options):
    with muster.Trainer(algo, CART, **SMALL, **options) as trainer:
        first = trainer.step()
        time.sleep(0.5)
        before = trainer.policy.agent.policy_sha256()
        time.sleep(0.2)
        assert trainer.policy.agent.policy_sha256() == before
        saved = trainer.save()
        assert saved.name == f"step-{first.env_step}" == f"step-{trainer.env_step}"
        second = trainer.step()
        assert second.env_step > first.env_step >= 1_000
    assert trainer.result().env_steps == second.env_step
    with muster.Trainer.resume(trainer.run_dir) as trainer:
        steps = list(trainer)
    assert trainer.result().stopped_by == "steps" and steps[-1].is_last


@pytest.mark.slow
def test_a_learner_that_is_killed_between_two_steps_goes_on_from_its_checkpoint():
    with muster.Trainer("dqn", CART, **SMALL, workers=3, env_steps=4_000) as trainer:
        trainer.step()
        saved = trainer.save()
        os.kill(nodes()[0], signal.SIGKILL)
        assert trainer.step().env_step >= 2_000
        assert muster.load_policy(saved) is not None
        list(trainer)
    assert trainer.result().replacements == 1


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_steps_on_ray_give_the_same_policy(whole, capfd):
    with muster.Trainer("ppo", CART, **PPO, engine="ray") as trainer:
        trainer.step()
        seen = trainer.policy.agent.policy_sha256()
        assert muster.load_policy(trainer.save()).agent.policy_sha256() == seen
        list(trainer)
    assert trainer.result().policy_sha256 == whole.policy_sha256
    assert "SIGTERM" not in capfd.readouterr().err


CELL = """
import gymnasium as gym
from gymnasium.envs.classic_control import CartPoleEnv
from torch import nn


class Mine(CartPoleEnv):
    def step(self, action):
        obs, reward, *rest = super().step(action)
        return obs, 2 * reward, *rest


class Net(nn.Module):
    def __init__(self, obs_space, outputs):
        super().__init__()
        self.body, self.out = nn.Linear(obs_space.shape[0], 8), nn.Linear(8, outputs)
        self.value = nn.Linear(8, 1)

    def forward(self, obs):
        hidden = self.body(obs).tanh()
        return self.out(hidden), self.value(hidden)


def hook(ctx):
    ctx.log("own/steps", ctx.env_step)


gym.register("OfACell-v0", Mine, max_episode_steps=50)
"""


def test_an_environment_a_network_and_a_hook_of_a_cell_reach_the_workers(monkeypatch):
    cell = types.ModuleType("__main__")  # as in a notebook: a main module without a file
    monkeypatch.setitem(sys.modules, "__main__", cell)
    exec(CELL, cell.__dict__)
    told = {**PPO, "model": cell.Net, "use": [cell.hook], "env_steps": 256}
    whole = muster.train("ppo", "OfACell-v0", quiet=True, **{**told, "workers": 0})
    with muster.Trainer("ppo", "OfACell-v0", **told) as trainer:
        first = trainer.step()
        assert first.metrics["own/steps"] == 128
        assert first.return_mean == 2 * first.length_mean
        assert isinstance(trainer.policy.model, cell.Net)
        list(trainer)
    assert trainer.result().policy_sha256 == whole.policy_sha256
    gym.registry.pop("OfACell-v0")


LEFT_OPEN = """
import muster

trainer = muster.Trainer("ppo", "CartPole-v1", run_dir="run", **{options})
print(trainer.step().env_step)
"""


@pytest.mark.parametrize("workers", [pytest.param(0, marks=pytest.mark.slow), 2])
def test_a_trainer_that_is_open_when_python_exits_ends_its_run(tmp_path, warm_python, workers):
    code = LEFT_OPEN.format(options={**PPO, "workers": workers})
    done = warm_python.run(code, cwd=tmp_path, warnings=["error"])
    assert (done.returncode, done.stdout, done.stderr) == (0, "128\n", "")
    saved = json.loads((tmp_path / "run" / "result.json").read_text())
    assert (saved["stopped_by"], saved["env_steps"]) == ("closed", 128)
