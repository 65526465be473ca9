"""What a user writes first: a script without a main guard, with all that it needs in it."""

import subprocess
import sys

import pytest

PLAIN = """
import muster
print("the script runs")
result = muster.train(
    {algo!r}, "CartPole-v1", workers={workers}, env_steps=2_048, stop_at=501.0, eval_episodes=2
)
print(type(result.policy).__name__, result.workers)
"""
OWN = """
import gymnasium as gym
import muster
from torch import nn
from gymnasium.envs.classic_control import CartPoleEnv

WORTH = 2.0  # a global of the script, which its environment uses

class Mine(CartPoleEnv):
    def step(self, action):
        obs, reward, terminated, truncated, info = super().step(action)
        return obs, WORTH * reward, terminated, truncated, info

gym.register("Mine-v0", {entry}, max_episode_steps=200)

class Net(nn.Module):
    def __init__(self, obs_space, outputs):
        super().__init__()
        self.body, self.out = nn.Linear(obs_space.shape[0], 16), nn.Linear(16, outputs)
        self.value = nn.Linear(16, 1)

    def forward(self, obs):
        hidden = self.body(obs).tanh()
        return (self.out(hidden), self.value(hidden)) if {algo!r} == "ppo" else self.out(hidden)

options = dict(env_steps=2_048, stop_at=501.0, eval_episodes=1, quiet=True, model=Net)
results = [muster.train({algo!r}, "Mine-v0", workers=n, **options) for n in {workers}]
assert all(isinstance(each.policy.model, Net) for each in results)
assert all(each.eval_return_mean % 2 == 0 for each in results)
print(len({{each.policy_sha256 for each in results}}))
"""


def run(folder, text):
    (folder / "script.py").write_text(text)
    return subprocess.run(
        [sys.executable, "script.py"], cwd=folder, capture_output=True, text=True, timeout=110
    )


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("algo", "workers"), [("ppo", 2), pytest.param("dqn", 3, marks=pytest.mark.slow)]
)
def test_a_script_of_two_lines_trains_with_workers(tmp_path, algo, workers):
    done = run(tmp_path, PLAIN.format(algo=algo, workers=workers))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("the script runs") == 1
    assert done.stdout.splitlines()[-1] == f"LoadedPolicy {workers}"


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "entry",
    [
        "Mine",
        pytest.param("'__main__:Mine'", marks=pytest.mark.slow),
        pytest.param("lambda **options: Mine(**options)", marks=pytest.mark.slow),
    ],
)
def test_an_environment_and_a_network_of_the_script_work_with_workers(tmp_path, entry):
    done = run(tmp_path, OWN.format(entry=entry, algo="ppo", workers=(0, 2)))
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_they_do_on_nodes_of_their_own_too(tmp_path):
    done = run(tmp_path, OWN.format(entry="Mine", algo="dqn", workers=(3,)))
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_from_standard_input_as_in_a_notebook(tmp_path):
    """There is no file that a new process could import."""
    text = OWN.format(entry="Mine", algo="ppo", workers=(0, 2))
    done = subprocess.run(
        [sys.executable, "-"], cwd=tmp_path, input=text, capture_output=True, text=True, timeout=110
    )
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr


@pytest.mark.timeout(600)
def test_what_cannot_be_sent_is_said_before_anything_is_written(tmp_path):
    text = OWN.format(entry="Mine", algo="ppo", workers=(2,))
    text = text.replace("WORTH = 2.0", "import threading; WORTH = threading.Lock()")
    done = run(tmp_path, text)
    assert "OptionError: the environment 'Mine-v0' cannot be sent to workers" in done.stderr
    assert not (tmp_path / "runs").exists()
