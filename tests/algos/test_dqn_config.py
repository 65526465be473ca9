"""What a DQNConfig refuses, and that it can be written to a file."""

import dataclasses
import json
import math
from typing import get_args

import pytest

from muster import OptionError
from muster.algos import DQNConfig
from muster.algos.dqn_config import Schedule
from muster.algos.options import Activation
from muster.nets.mlp import ACTIVATIONS
from muster.rl_utils import get_epsilon_greedy_fn

WHOLE = ["batch_size", "buffer_size", "train_every", "updates_per_train", "target_update",
         "n_step", "horizon"]  # fmt: skip
POSITIVE = ["lr", "tau", "max_grad_norm", "eps_decay"]
FRACTIONS = ["gamma", "alpha", "beta_start", "beta_end", "eps_start", "eps_end"]
SWITCHES = ["double", "dueling", "prioritized", "huber"]


@pytest.mark.parametrize(
    ("name", "value"),
    [(name, value) for name in WHOLE for value in (0, -1, 1.5, math.nan, math.inf, "7", True, None)]
    + [("learning_starts", value) for value in (-1, 1.5, math.nan, "7", None)]
    + [(name, value) for name in POSITIVE for value in (0, -1, math.nan, math.inf, "1", True)]
    + [(name, value) for name in FRACTIONS for value in (-0.1, 1.1, math.nan, math.inf, "1", None)]
    + [(name, value) for name in SWITCHES for value in (0, 1, "yes", None)]
    + [("lr", None), ("eps_decay", None), ("tau", 1.1), ("tau", None)]
    + [("hidden", value) for value in (64, "64", (0,), (-1, 2), (64.0,), (True,), None)]
    + [("eps_schedule", "cosine"), ("activation", "elu"), ("model", 7), ("model", dict)],
)
def test_senseless_values_are_refused_by_name(name, value):
    with pytest.raises(OptionError) as caught:
        DQNConfig(**{name: value})
    assert str(caught.value).startswith(f"{name}={value!r} is not ")


@pytest.mark.parametrize(
    "options",
    [
        {"learning_starts": 0, "gamma": 0, "alpha": 0, "beta_start": 0, "eps_end": 0},
        {"gamma": 1, "tau": 1, "eps_start": 1, "max_grad_norm": None, "lr": 1},
        {"hidden": (), "eps_schedule": "exp", "activation": "tanh", "model": "mine"},
        {"batch_size": 64, "buffer_size": 64},
    ],
)
def test_values_at_the_edge_are_taken(options):
    cfg = DQNConfig(**options)
    assert {name: getattr(cfg, name) for name in options} == options


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"batch_size": 65, "buffer_size": 64}, "batch_size=65 and buffer_size=64"),
        ({"n_step": 8, "buffer_size": 8, "batch_size": 1}, "n_step=8 and buffer_size=8"),
        ({"dueling": True, "model": "mine"}, "dueling=True and model='mine'"),
        ({"dueling": True, "hidden": ()}, "dueling=True and hidden=()"),
    ],
)
def test_contradictions_are_refused(options, what):
    with pytest.raises(OptionError) as caught:
        DQNConfig(**options)
    assert str(caught.value).startswith(f"{what} contradict each other")


def test_a_config_is_plain_and_frozen():
    cfg = DQNConfig()
    again = json.loads(json.dumps(dataclasses.asdict(cfg)))
    assert dataclasses.asdict(DQNConfig(**{**again, "hidden": tuple(again["hidden"])})) == (
        dataclasses.asdict(cfg)
    )
    with pytest.raises(dataclasses.FrozenInstanceError):
        cfg.lr = 1


def test_the_config_names_the_activations_and_schedules_that_there_are():
    assert set(get_args(Activation)) == set(ACTIVATIONS)
    for schedule in get_args(Schedule):
        assert get_epsilon_greedy_fn(1.0, 0.0, 10.0, schedule)(0) == 1.0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("buffer_size", 10**30),
        ("batch_size", 10**30),
        ("horizon", 10**30),
        ("lr", 1e30),
        ("hidden", (10**30,)),
        ("hidden", (64,) * 300),
    ],
)
def test_what_no_machine_could_do_is_refused(name, value):
    with pytest.raises(OptionError, match=f"^{name}=.* is not possible"):
        DQNConfig(**{name: value})
