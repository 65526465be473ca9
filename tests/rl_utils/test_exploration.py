"""Golden numbers for the exploration schedules."""

import math

import pytest

from muster import OptionError
from muster.rl_utils import get_epsilon_greedy_fn


@pytest.mark.parametrize(
    ("kind", "env_step", "expected"),
    [
        ("linear", 0, 0.9),
        ("linear", 250, 0.7),
        ("linear", 500, 0.5),
        ("linear", 1000, 0.1),
        ("linear", 10_000, 0.1),
        ("exp", 0, 0.9),
        ("exp", 1000, 0.1 + 0.8 * 0.36787944117144233),
        ("exp", 100_000, 0.1),
    ],
)
def test_the_schedule_goes_from_start_to_end(kind, env_step, expected):
    assert get_epsilon_greedy_fn(0.9, 0.1, 1000, kind)(env_step) == pytest.approx(expected)


def test_exp_is_the_default_and_type_may_be_named():
    assert get_epsilon_greedy_fn(1, 0, 10)(10) == pytest.approx(1 / math.e)
    assert get_epsilon_greedy_fn(1, 0, 10, type="linear")(10) == 0


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ((1.5, 0.1, 10, "exp"), "start=1.5 is not possible"),
        ((1.0, -0.1, 10, "exp"), "end=-0.1 is not possible"),
        ((1.0, math.nan, 10, "exp"), "end=nan is not possible"),
        ((1.0, 0.1, 0, "exp"), "decay=0 is not possible"),
        ((1.0, 0.1, math.inf, "exp"), "decay=inf is not possible"),
        ((1.0, 0.1, 10, "cosine"), "type='cosine' is not possible"),
    ],
)
def test_bad_values_are_refused(arguments, what):
    with pytest.raises(OptionError) as caught:
        get_epsilon_greedy_fn(*arguments)
    assert str(caught.value).startswith(what)
