"""Environments of other packages: they work where the package is installed, else it is named."""

import importlib.util
import sys

import gymnasium as gym
import numpy as np
import pytest

from muster.cli.main import main
from muster.envs import MissingPackageError, UnknownEnvError, check_env, make_envs
from muster.envs.small_seeds import SmallSeeds
from muster.envs.text_parts import _warn
from muster.errors import MusterWarning
from muster.installs import install


class Worded(gym.Env):
    """An image with words, as MiniGrid has it."""

    observation_space = gym.spaces.Dict(
        {
            "mission": gym.spaces.Text(100),
            "view": gym.spaces.Box(0, 255, (2, 2), np.uint8),
            "way": gym.spaces.Discrete(4),
        }
    )
    action_space = gym.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return {**self.observation_space.sample(), "mission": "go to the door"}, {}

    def step(self, action):
        return {**self.observation_space.sample(), "mission": "go"}, 0.0, False, True, {}


def stepped(env_id, **options):
    """Make two environments and step them once."""
    with make_envs(env_id, 2, **options) as envs:
        envs.reset()
        space = envs.single_action_space
        envs.step(np.stack([np.asarray(space.sample()) for _ in range(2)]))
        return envs


def test_text_in_observations_is_left_out_with_one_warning():
    _warn.cache_clear()
    with pytest.warns(MusterWarning, match="text in 'mission', which no network reads") as said:
        assert list(stepped(Worded).single_observation_space.spaces) == ["view", "way"]
        stepped(Worded)
    assert len(said) == 1


def test_a_package_that_is_not_installed_is_named(monkeypatch, capsys):
    monkeypatch.setattr("muster.envs.make._has_envpool", lambda: False)
    needed = {
        "ALE/Pong-v5": ("ale_py", install("envs")),
        "MiniGrid-Empty-5x5-v0": ("minigrid", "pip install minigrid"),
        "BabyAI-GoToRedBall-v0": ("minigrid", "pip install minigrid"),
        "dm_control/cartpole-swingup-v0": ("dm_control", "pip install 'shimmy[dm-control]'"),
        "nowhere_here:Env-v0": ("nowhere_here", "pip install the package that has"),
    }
    for env_id, (module, fix) in needed.items():
        monkeypatch.delitem(gym.registry, env_id, raising=False)
        monkeypatch.setitem(sys.modules, module, None)  # as if it were not installed
        with pytest.raises(MissingPackageError) as told:
            make_envs(env_id)
        assert fix in told.value.args[2], told.value
        assert main(["train", "ppo", env_id]) == 2
        assert len(capsys.readouterr().err.splitlines()) == 3


def test_a_module_with_its_id_is_imported_from_the_current_folder(tmp_path, monkeypatch):
    (tmp_path / "envs_here_17.py").write_text(
        "import gymnasium as gym\n"
        "gym.register('OnlyHere17-v0', 'gymnasium.envs.classic_control:CartPoleEnv', "
        "max_episode_steps=5)\n"
    )
    monkeypatch.chdir(tmp_path)
    assert stepped("envs_here_17:OnlyHere17-v0").single_action_space.n == 2
    with pytest.raises(UnknownEnvError, match="Nearest: 'envs_here_17:OnlyHere17-v0'"):
        make_envs("envs_here_17:OnlyHeer17-v0", backend="gymnasium")


def test_old_generators_get_seeds_that_they_accept():
    class Old(gym.Env):
        observation_space = gym.spaces.Box(0, 1, (1,), np.float32)
        action_space = gym.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            draw = np.random.RandomState(seed).uniform(size=1)
            return draw.astype(np.float32), {}

    first = [SmallSeeds(Old()).reset(seed=seed)[0][0] for seed in (2**62 + 1, 2**62 + 2)]
    assert first[0] != first[1]


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("env_id", "package"),
    [
        ("ALE/Pong-v5", "ale_py"),
        ("MiniGrid-Empty-5x5-v0", "minigrid"),
        ("dm_control/cartpole-swingup-v0", "shimmy"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_they_step_and_are_restored_where_they_are_installed(env_id, package):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    report = check_env(env_id)
    assert report.reproducible and report.restorable, report
