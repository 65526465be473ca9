"""What a study tries: words, types, ranges."""

import numpy as np
import pytest

from muster.tuning.errors import SpaceError
from muster.tuning.space import Choices, Span, combinations, read_space, words_to_space


def test_values_are_read_by_the_type_of_their_option():
    words = ["lr=1e-3,0.01", "epochs=1e1,4", "hidden=64+64,128", "shared=true,False"]
    words += ["lr-end=none,1e-5", "activation=tanh"]
    found = read_space("ppo", words_to_space(words, "grid"), "grid")
    assert found == {
        "lr": Choices((0.001, 0.01)),
        "epochs": Choices((10, 4)),
        "hidden": Choices(((64, 64), (128,))),
        "shared": Choices((True, False)),
        "lr_end": Choices((None, 1e-5)),
        "activation": Choices(("tanh",)),
    }


def test_a_range_has_the_type_of_its_option():
    found = read_space("ppo", {"lr": "log:1e-5:1e-2", "epochs": "1:8", "gamma": "0.9:1"}, "space")
    assert found["lr"] == Span(1e-5, 1e-2, log=True, whole=False)
    assert found["epochs"] == Span(1, 8, log=False, whole=True)
    assert found["gamma"] == Span(0.9, 1.0, log=False, whole=False)


@pytest.mark.parametrize("span", [Span(1, 3, False, True), Span(1, 3, True, True)])
def test_whole_numbers_are_drawn_from_end_to_end(span):
    rng = np.random.default_rng(0)
    drawn = [span.draw(rng) for _ in range(200)]
    assert set(drawn) == {1, 2, 3} and all(type(each) is int for each in drawn)


def test_a_log_range_has_as_many_draws_in_each_order_of_magnitude():
    rng = np.random.default_rng(0)
    drawn = np.array([Span(1e-4, 1.0, True, False).draw(rng) for _ in range(4_000)])
    counts = np.histogram(np.log10(drawn), bins=[-4, -3, -2, -1, 0])[0]
    assert counts.sum() == 4_000 and counts.min() > 900


def test_the_last_option_of_a_grid_changes_fastest():
    grid = {"lr": Choices((1, 2)), "gamma": Choices((3, 4))}
    assert [tuple(each.values()) for each in combinations(grid)] == [(1, 3), (1, 4), (2, 3), (2, 4)]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"lr": 0.1}, r"has 0.1 for lr"),
        ({"lr": []}, "no value for lr"),
        ({"lr": [0.1, 0.1]}, "a value of lr twice"),
        ({"activation": "sigmoid"}, "'sigmoid' for activation"),
        ({"shared": "maybe"}, "'maybe' for shared"),
        ({}, "is empty"),
    ],
)
def test_values_that_cannot_be_are_refused(given, message):
    with pytest.raises(SpaceError, match=message):
        read_space("ppo", given, "grid")
