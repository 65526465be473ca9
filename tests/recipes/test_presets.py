"""Presets: found by id or by family, and none hides another."""

from fnmatch import fnmatchcase

import pytest

from muster.recipes import presets
from muster.recipes.algorithms import configuration_of
from muster.recipes.presets import preset


@pytest.mark.parametrize(("algo", "known"), [("sac", "Hopper-v5"), ("ppo", "procgen:coinrun")])
def test_the_ids_of_a_family_have_one_preset(algo, known):
    of_runs = dict(configuration_of(algo).OF_RUNS)
    other = {"sac": "Hopper-v4", "ppo": "procgen:starpilot-test"}[algo]
    assert preset(algo, known) == preset(algo, other) != of_runs
    assert preset(algo, f"my-{known}") == of_runs


def test_no_preset_hides_another():
    for algo, ids in presets._PRESETS:
        example = ids.replace("[45]", "4").replace("*", ":any")
        matching = [
            other
            for name, other in presets._PRESETS
            if name == algo and fnmatchcase(example, other)
        ]
        assert matching == [ids]
