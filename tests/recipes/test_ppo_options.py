"""What PPO refuses: every misspelt option, every odd number, every contradiction."""

from dataclasses import fields

import gymnasium as gym
import pytest
from bad_input import ODD, _kind, slips_of

from muster.algos.ppo_config import PPOConfig
from muster.errors import OptionError
from muster.recipes.options import TrainOptions
from muster.recipes.settings import resolve

KEYS = {field.name for cls in (TrainOptions, PPOConfig) for field in fields(cls)}
OWN = sorted(field.name for field in fields(PPOConfig))
NUMBERS = {name: _kind(PPOConfig, name) for name in OWN if _kind(PPOConfig, name) in (int, float)}
LEGAL = {
    "clip": set(),
    "clip_end": {0},
    "entropy_coef": {0},
    "entropy_end": {0},
    "epochs": set(),
    "gae_lambda": {0},
    "gamma": {0},
    "hidden": set(),
    "horizon": set(),
    "lag": {0},
    "log_std": {0, -1},
    "lr": set(),
    "lr_end": {0},
    "max_grad_norm": {1e30},
    "minibatches": set(),
    "rollout": set(),
    "sequence": set(),
    "slots": set(),
    "target_kl": {1e30},
    "value_clip": {0},
    "value_coef": {0},
}
"""Which of 0, -1 and 1e30 each number may be. NaN, infinity and words no number may be."""


def value_of(name, text):
    try:
        return NUMBERS[name](text) if NUMBERS[name] is int else float(text)
    except ValueError:
        try:
            return float(text)
        except ValueError:
            return text


@pytest.mark.parametrize("name", sorted(NUMBERS))
@pytest.mark.parametrize("text", ODD)
def test_an_odd_number_is_refused_by_name_unless_it_is_possible(name, text):
    value = value_of(name, text)
    possible = isinstance(value, int | float) and value in LEGAL[name]
    if NUMBERS[name] is int and isinstance(value, float):
        possible = False
    given = {name: (value,) if name == "hidden" else value}
    if possible:
        resolve("ppo", "CartPole-v1", given)
    else:
        with pytest.raises(OptionError, match=name):
            resolve("ppo", "CartPole-v1", given)


def test_every_number_is_tried():
    assert NUMBERS.keys() == LEGAL.keys()


@pytest.mark.parametrize("key", OWN)
def test_a_slip_of_an_option_is_refused_with_an_option_that_there_is(key):
    for slip in slips_of(key):
        if slip in KEYS:
            continue
        with pytest.raises(OptionError, match="there is no option") as refused:
            resolve("ppo", "CartPole-v1", {slip: 1})
        assert refused.value.args[2].partition("=")[0] in KEYS


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"num_envs": 6}, "num_envs=6 and slots=4"),
        ({"workers": 5}, "workers=5 and slots=4"),
        ({"minibatches": 7}, "minibatches=7 and rollout=128"),
        ({"model": "lstm", "sequence": 7}, "rollout=128 and sequence=7"),
        ({"model": "lstm", "hidden": ()}, "model=lstm and hidden="),
        ({"model": "gru", "hidden": ()}, "model=gru and hidden="),
        ({"model": "gru", "sequence": 7}, "rollout=128 and sequence=7"),
        ({"model": "lstm", "minibatches": 64}, "minibatches=64 and rollout=128"),
    ],
)
def test_contradictions_are_refused_with_both_sides_and_a_way_out(options, what):
    with pytest.raises(OptionError, match="contradict") as refused:
        resolve("ppo", "CartPole-v1", options)
    assert what in refused.value.args[0]
    name, _, value = refused.value.args[2].partition("=")
    fixed = tuple(map(int, value.strip("()").split(",")[:1])) if "(" in value else int(value)
    resolve("ppo", "CartPole-v1", {**options, name: fixed})


def test_all_cores_are_used_unless_told_otherwise():
    assert 1 <= resolve("ppo", "CartPole-v1", {}).workers <= PPOConfig.slots
    assert resolve("ppo", "CartPole-v1", {"workers": 0}).workers == 0
    assert resolve("dqn", "CartPole-v1", {}).workers == 0


def test_actions_that_no_policy_has_are_refused():
    with pytest.raises(OptionError, match="MultiBinary"):
        PPOConfig.check_actions(gym.spaces.MultiBinary(3))
