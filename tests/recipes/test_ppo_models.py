"""PPO with networks of the user's own: a residual CNN by class and by name, any image size."""

import json
import os
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest
from torch import nn

import muster
from muster.nets import register_model

NETS = '''
import gymnasium as gym
import numpy as np
from torch import nn


class Pixels(gym.Env):
    """Shows a bright left or right half, and rewards saying which."""

    observation_space = gym.spaces.Box(0, 255, (12, 20, 3), np.uint8)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._look(), {}

    def step(self, action):
        self.steps += 1
        reward = float(action == self.side)
        return self._look(), reward, self.steps == 10, False, {}

    def _look(self):
        self.side = int(self.np_random.integers(2))
        image = np.zeros((12, 20, 3), np.uint8)
        image[:, 10 * self.side : 10 * self.side + 10] = 200
        return image


class Residual(nn.Module):
    def __init__(self, obs_space, outputs):
        super().__init__()
        channels = obs_space.shape[2]
        self.first = nn.Conv2d(channels, 8, 3, padding=1)
        self.block = nn.Conv2d(8, 8, 3, padding=1)
        size = 8 * obs_space.shape[0] * obs_space.shape[1]
        self.policy, self.value = nn.Linear(size, outputs), nn.Linear(size, 1)

    def forward(self, image):
        x = self.first(image.permute(0, 3, 1, 2).float() / 255)
        x = (x + self.block(x.relu())).relu().flatten(1)
        return self.policy(x), self.value(x)


gym.register("Pixels-v0", Pixels)
'''
SMALL = {"env_steps": 512, "rollout": 16, "num_envs": 8, "eval_episodes": 4, "quiet": True}


@pytest.fixture
def nets(tmp_path, monkeypatch):
    (tmp_path / "my_nets.py").write_text(NETS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    sys.modules.pop("my_nets", None)
    yield tmp_path
    sys.modules.pop("my_nets", None)
    gym.registry.pop("Pixels-v0", None)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_residual_cnn_by_class_trains_from_the_command_line_on_any_number_of_workers(nets):
    shas = set()
    for workers in ("0", "2"):
        run = nets / f"run{workers}"
        words = ["train", "ppo", "my_nets:Pixels-v0", "--model", "my_nets:Residual"]
        more = [f"--{name.replace('_', '-')}={value}" for name, value in SMALL.items()]
        more = [word for word in more if "quiet" not in word]
        done = subprocess.run(
            [
                *(sys.executable, "-m", "muster.cli.main", *words, *more),
                *("--workers", workers, "--run-dir", str(run), "--quiet"),
            ],
            capture_output=True,
            text=True,
            timeout=100,
            env={**os.environ, "PYTHONPATH": str(nets)},
            cwd=nets,
        )
        assert done.returncode == 0, done.stderr
        shas.add(json.loads((run / "result.json").read_text())["policy_sha256"])
    assert len(shas) == 1


@pytest.mark.parametrize("given", ["name", "class"])
def test_a_residual_cnn_by_name_or_as_a_class_trains_with_and_without_workers(nets, given):
    from my_nets import Residual

    model = Residual
    if given == "name":
        model = "test_ppo_models.Residual"
        register_model(model, Residual)
    results = [
        muster.train(
            "ppo", "my_nets:Pixels-v0", workers=workers, run_dir=str(nets / f"{given}{workers}"),
            **{**SMALL, "model": model},
        )
        for workers in (0, 2)
    ]  # fmt: skip
    assert all(isinstance(each.policy.model, Residual) for each in results)
    assert results[0].policy_sha256 == results[1].policy_sha256
    more = muster.resume(nets / f"{given}2", model=model, env="my_nets:Pixels-v0", env_steps=640)
    assert more.env_steps == 640


def test_a_network_that_returns_no_value_is_refused_before_anything_is_written(nets):
    class NoValue(nn.Module):
        def __init__(self, obs_space, outputs):
            super().__init__()
            self.layer = nn.Linear(int(np.prod(obs_space.shape)), outputs)

        def forward(self, obs):
            return self.layer(obs.float().flatten(1))

    register_model("test_ppo_models.NoValue", NoValue)
    with pytest.raises(muster.errors.MusterError, match="not a pair"):
        muster.train(
            "ppo",
            "CartPole-v1",
            model="test_ppo_models.NoValue",
            workers=0,
            run_dir=str(nets / "r"),
            **SMALL,
        )
    assert not (nets / "r").exists()


class Shaped(gym.Env):
    """An image of any shape."""

    action_space = gym.spaces.Discrete(2)

    def __init__(self, shape):
        self.observation_space = gym.spaces.Box(0, 255, shape, np.uint8)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 1.0, bool(self.np_random.random() < 0.2), False, {}


@pytest.mark.parametrize("shape", [(1, 1), (5, 7), (9, 9, 3), (3, 33, 20), (64, 64, 1)])
def test_an_image_of_any_size_trains_with_the_standard_network(shape, tmp_path):
    name = f"Shaped{'x'.join(map(str, shape))}-v0"
    gym.register(name, lambda: Shaped(shape))
    try:
        result = muster.train(
            "ppo",
            name,
            workers=0,
            run_dir=str(tmp_path / "run"),
            hidden=(16,),
            **{**SMALL, "env_steps": 128, "minibatches": 1, "epochs": 1, "eval_episodes": 1},
        )
        assert result.env_steps == 128
    finally:
        del gym.registry[name]
