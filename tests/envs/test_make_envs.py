"""make_envs: the right backend, or the right words."""

import re
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest
from scripted_envs import Scripted

from muster.envs import EnvError, MissingPackageError, UnknownEnvError, make_envs
from muster.envs.make import nearest_id
from muster.errors import MusterError, OptionError
from muster.installs import install


def test_auto_takes_gymnasium_if_it_has_the_id():
    with make_envs("CartPole-v1") as envs:
        assert envs.backend == "gymnasium" and envs.num_envs == 1


def test_auto_takes_envpool_if_only_envpool_has_the_id():
    with make_envs("Pong-v5", num_envs=2) as envs:
        assert envs.backend == "envpool"
        assert envs.reset().shape == (2, 4, 84, 84)


def test_auto_takes_envpool_if_the_package_for_gymnasium_is_missing():
    with make_envs("MiniGrid-Empty-5x5-v0") as envs:
        assert envs.backend == "envpool" and sorted(envs.reset()) == [
            "direction",
            "image",
            "mission",
        ]


@pytest.mark.parametrize(
    "env_id, nearest",
    [
        ("CartPole-v7", "CartPole-v1"),
        ("cartpole-v1", "CartPole-v1"),
        ("CartPole", "CartPole-v1"),
        ("CartPol-v1", "CartPole-v1"),
        ("LunarLander-v9", "LunarLander-v3"),
        ("ALE/Pung-v5", "ALE/Pong-v5"),
    ],
)
@pytest.mark.parametrize("backend", ["auto", "gymnasium"])
def test_an_unknown_id_is_answered_with_the_nearest_one(env_id, nearest, backend):
    with pytest.raises(UnknownEnvError) as caught:
        make_envs(env_id, backend=backend)
    assert str(caught.value).startswith(f"No environment {env_id!r}. Nearest: {nearest!r}\n")
    assert isinstance(caught.value, MusterError) and isinstance(caught.value, ValueError)


def test_an_id_that_is_like_nothing_gets_no_suggestion():
    with pytest.raises(UnknownEnvError) as caught:
        make_envs("qqqqqqqq")
    assert str(caught.value).startswith("No environment 'qqqqqqqq'.\n")


def test_envpool_is_asked_for_its_own_ids():
    with pytest.raises(UnknownEnvError, match="Nearest: 'Pong-v5'"):
        make_envs("Ping-v5", backend="envpool")
    with pytest.raises(UnknownEnvError, match="Nearest"):
        make_envs("ALE/Pong-v5", backend="envpool")


def test_the_nearest_id_is_the_newest_of_the_same_name():
    known = ["A-v9", "Ab-v1", "Ab-v10", "Ab-v2", "x/Ab-v11"]
    assert nearest_id("Ab-v3", known) == "Ab-v10"
    assert nearest_id("AB", known) == "Ab-v10"
    assert nearest_id("zzzz", known) is None


def without(monkeypatch, module, prefix):
    """Pretend that a package is not installed, and that nobody has imported it before."""
    monkeypatch.setitem(sys.modules, module, None)
    for env_id in [env_id for env_id in gym.registry if env_id.startswith(prefix)]:
        monkeypatch.delitem(gym.registry, env_id)


def test_a_missing_plugin_is_named_with_the_line_that_installs_it(monkeypatch):
    without(monkeypatch, "ale_py", "ALE/")
    with pytest.raises(MissingPackageError) as caught:
        make_envs("ALE/Pong-v5")
    message = str(caught.value)
    assert "'ale-py'" in message and f"try: {install('envs')}" in message
    assert isinstance(caught.value, ImportError)


def test_a_missing_module_of_an_id_is_named():
    with pytest.raises(MissingPackageError, match="'no_such_module'"):
        make_envs("no_such_module:Thing-v0")


def test_a_missing_envpool_is_named_with_the_line_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "envpool", None)
    with pytest.raises(MissingPackageError, match=re.escape(f"try: {install('envs')}")):
        make_envs("CartPole-v1", backend="envpool")
    with pytest.raises(UnknownEnvError, match="Nearest: 'CartPole-v1'"):
        make_envs("CartPole-v7")
    with make_envs("CartPole-v1") as envs:
        assert envs.backend == "gymnasium"


@pytest.mark.parametrize(
    "said, line",
    [
        ('run `pip install "gymnasium[mujoco]"`', 'pip install "gymnasium[mujoco]"'),
        ("run `pip install gymnasium[box2d]`", install("envs")),
        ("something is missing", 'pip install "gymnasium[all]"'),
    ],
)
def test_a_missing_part_of_gymnasium_is_named_with_the_line_that_installs_it(
    said, line, monkeypatch
):
    def needy():
        raise gym.error.DependencyNotInstalled(said)

    spec = gym.envs.registration.EnvSpec("Needy-v0", entry_point=needy)
    monkeypatch.setitem(gym.registry, "Needy-v0", spec)
    with pytest.raises(MissingPackageError) as caught:
        make_envs("Needy-v0")
    assert str(caught.value).endswith(f"try: {line}") and said in str(caught.value)


def test_an_id_may_name_the_module_that_registers_it(monkeypatch):
    spec = gym.envs.registration.EnvSpec("Mine-v0", entry_point=Scripted)
    monkeypatch.setitem(gym.registry, "Mine-v0", spec)
    with make_envs("scripted_envs:Mine-v0") as envs:
        assert envs.env_id == "scripted_envs:Mine-v0" and envs.reset().shape == (1, 2)


def test_atari_is_registered_by_asking_for_it():
    with make_envs("ALE/Pong-v5", obs_type="ram") as envs:
        assert envs.backend == "gymnasium"
        obs = envs.reset()
        assert obs.shape == (1, 128) and obs.dtype == np.uint8


def test_arguments_reach_the_envs():
    with make_envs("FrozenLake-v1", map_name="8x8", is_slippery=False) as envs:
        assert envs.single_observation_space.n == 64
    with make_envs(Scripted, num_envs=2, script=[(1, "truncated")]) as envs:
        envs.reset()
        assert envs.step([0, 0])[3].all()


def test_arguments_that_an_env_does_not_know_are_an_env_error():
    with pytest.raises(EnvError, match="unexpected keyword argument 'colour'"):
        make_envs("CartPole-v1", colour="red")
    with pytest.raises(EnvError, match="unexpected keyword argument 'colour'"):
        make_envs("CartPole-v1", backend="envpool", colour="red")


def test_a_factory_is_called_for_every_env_and_gives_its_name():
    made = []

    def my_env():
        made.append(Scripted())
        return made[-1]

    with make_envs(my_env, num_envs=3) as envs:
        assert envs.env_id == "my_env" and len(made) == 3


@pytest.mark.parametrize("num_envs", [0, -1, 1.0, "8", None, True, 10**9])
def test_num_envs_has_to_be_a_positive_integer(num_envs):
    with pytest.raises(OptionError, match="num_envs="):
        make_envs("CartPole-v1", num_envs=num_envs)


@pytest.mark.parametrize("seed", [1.5, "0", None, False])
def test_a_seed_has_to_be_an_integer(seed):
    with pytest.raises(OptionError, match="seed="):
        make_envs("CartPole-v1", seed=seed)


def test_numbers_of_numpy_are_numbers():
    with make_envs("CartPole-v1", num_envs=np.int32(2), seed=np.uint64(2**63)) as envs:
        assert envs.num_envs == 2 and type(envs.num_envs) is int
        envs.reset()
        assert type(envs.state_dict()["seed"]) is int


def test_other_wrong_arguments_are_refused():
    with pytest.raises(OptionError, match="backend='gym'"):
        make_envs("CartPole-v1", backend="gym")
    with pytest.raises(OptionError, match="env_id=3"):
        make_envs(3)
    with pytest.raises(OptionError, match="not possible for a function"):
        make_envs(Scripted, backend="envpool")


def test_gymnasiums_checking_wrappers_are_left_out_and_time_limits_are_not():
    with make_envs("CartPole-v1") as envs:
        wrappers = str(envs._envs[0])
        assert "TimeLimit" in wrappers
        assert "PassiveEnvChecker" not in wrappers and "OrderEnforcing" not in wrappers
    assert gym.spec("CartPole-v1").order_enforce  # for everybody else all is as it was


def test_importing_envs_imports_neither_torch_nor_envpool():
    heavy = ["torch", "envpool", "ray", "matplotlib", "pygame"]
    code = (
        "import sys, muster.envs as e; e.make_envs('CartPole-v1').reset();"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True
    )
    assert done.stdout == "[]\n"
