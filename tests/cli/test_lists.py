"""`muster algos`, `models` and `envs`: what there is to choose from, in 80 columns."""

import pytest

from muster import register_algorithm
from muster.algos.base import Algorithm
from muster.cli.main import main
from muster.nets import register_model
from muster.nets.registry import BUILT_IN, is_built_in
from muster.recipes.algorithms import ALGORITHMS
from muster.recipes.catalog import algorithms, envs, models


def shown(capsys, *words):
    assert main([*words]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    return lines


def test_every_algorithm_is_listed_with_its_actions(capsys):
    lines = shown(capsys, "algos")
    assert [line.split()[0] for line in lines[1 : 1 + len(ALGORITHMS)]] == list(ALGORITHMS)
    by_name = {each.name: each for each in algorithms()}
    assert by_name["sac"].actions == ("Box",)
    assert by_name["ppo"].actions == ("Discrete", "MultiDiscrete", "Box")
    assert by_name["dqn"].learns_from == "replay"


def test_what_is_registered_is_listed_too(capsys):
    ppo = ALGORITHMS["ppo"]
    register_algorithm("listed_one", Algorithm(ppo.config, ppo.agent))
    register_model("listed_net", lambda obs_space, n_outputs: None)
    assert any(line.startswith("listed_one ") for line in shown(capsys, "algos"))
    assert any(line.startswith("listed_net ") for line in shown(capsys, "models"))


def test_every_network_of_ours_is_listed(capsys):
    names = [each.name for each in models()]
    assert set(BUILT_IN) < set(names) and all(map(is_built_in, names))
    lines = shown(capsys, "models")[1:]
    assert [line.split()[0] for line in lines[: len(names)]] == names


def test_environments_are_found_by_a_word_in_their_ids(capsys):
    lines = shown(capsys, "envs", "cartp")
    assert all("cartp" in line.lower() for line in lines[1:])
    assert any(line.split()[-1] == "CartPole-v1" for line in lines)
    assert len(envs()) > len(envs("cartp")) > 0
    shown(capsys, "envs")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["envs", "CartPloe"], "the nearest is 'CartPole-v1'"),
        (["envs", "qqqqqqqq"], "no installed package has registered one"),
        (["algos", "--all"], "--all"),
        (["models", "mlp"], "mlp"),
    ],
)
def test_slips_are_answered_in_three_lines(capsys, words, said):
    assert main(words) == 2
    text = capsys.readouterr().err
    assert said in text and len(text.splitlines()) == 3 and "\n  try: " in text
