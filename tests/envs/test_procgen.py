"""Procgen's games by the names that people know: which of EnvPool's they are, and which levels."""

import numpy as np
import pytest

from muster import OptionError
from muster.envs import MissingPackageError, UnknownEnvError, make_envs
from muster.envs.procgen import GAMES, find_procgen, is_procgen
from muster.recipes.presets import preset
from muster.recipes.saved import refuse_env_of_a_file


@pytest.mark.parametrize(
    ("env_id", "pool_id", "levels"),
    [
        ("procgen:coinrun", "CoinrunEasy-v0", 200),
        ("procgen:coinrun-test", "CoinrunEasy-v0", 0),
        ("procgen:starpilot-hard", "StarpilotHard-v0", 500),
        ("procgen:starpilot-hard-test", "StarpilotHard-v0", 0),
        ("procgen:procgen-coinrun-v0", "CoinrunHard-v0", 0),
        ("procgen-coinrun-v0", "CoinrunHard-v0", 0),
    ],
)
def test_an_id_names_a_game_of_envpool_and_its_levels(env_id, pool_id, levels):
    assert is_procgen(env_id)
    assert find_procgen(env_id) == (pool_id, {"num_levels": levels, "start_level": 0})


def test_envpool_has_all_games():
    envpool = pytest.importorskip("envpool")
    known = set(envpool.list_all_envs())
    assert {
        find_procgen(f"procgen:{game}{mode}")[0] for game in GAMES for mode in ("", "-hard")
    } <= known


@pytest.mark.parametrize(
    "env_id", ["procgen:coinrum", "procgen:coinrun-hart", "procgen:procgen-x-v0"]
)
def test_a_slip_is_answered_with_the_games_there_are(env_id):
    with pytest.raises(UnknownEnvError, match="the games are bigfish") as caught:
        make_envs(env_id)
    assert find_procgen(caught.value.nearest)


def test_gymnasium_does_not_run_them_and_says_so():
    with pytest.raises(OptionError, match="EnvPool alone"):
        make_envs("procgen:coinrun", backend="gymnasium")


def test_they_are_no_code_that_a_file_names_and_have_a_preset(tmp_path):
    refuse_env_of_a_file("procgen:coinrun", tmp_path)
    assert preset("ppo", "procgen:coinrun") == preset("ppo", "procgen:maze-hard")
    assert preset("ppo", "procgen:coinrun")["model"] == "impala_cnn"


def test_levels_are_those_that_were_asked_for():
    pytest.importorskip("envpool")
    try:
        envs = make_envs("procgen:coinrun", 4, seed=1)
    except MissingPackageError as error:
        assert "apt-get install libqt5core5a" in str(error)
        pytest.skip("Procgen needs Qt 5 of the system, which is not installed")
    with envs:
        obs = envs.reset()
        assert obs.shape == (4, 3, 64, 64) and obs.dtype == np.uint8
        envs.step(np.zeros(4, np.int64))
    with make_envs("procgen:coinrun", 4, seed=1, num_levels=1) as one:
        first = one.reset()
        assert all(np.array_equal(first[0], each) for each in first), "one level, four times"
