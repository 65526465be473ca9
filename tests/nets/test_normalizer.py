"""Observations at mean 0 and spread 1: merged moments, and what is left alone."""

import numpy as np
import pytest
import torch
from gymnasium import spaces

from muster.nets.flat import FlatParameters
from muster.nets.normalizer import LIMIT, ObsNorm, RunningNorm


def _merge(norm, rows):
    rows = rows.astype(np.float64)
    mean = rows.mean(0)
    norm.merge(len(rows), mean, ((rows - mean) ** 2).sum(0))


@pytest.mark.parametrize("scale, shift", [(1.0, 0.0), (1e-3, 5.0), (300.0, -1e4)])
def test_merged_moments_are_those_of_all_rows(rng, scale, shift):
    rows = shift + scale * rng.normal(size=(1000, 3))
    norm = RunningNorm(3)
    for part in np.split(rows, [1, 2, 10, 400]):
        _merge(norm, part)
    assert norm.count.item() == 1000
    np.testing.assert_allclose(norm.mean.numpy(), rows.mean(0), rtol=1e-10)
    np.testing.assert_allclose(norm.var.numpy(), rows.var(0), rtol=1e-8)
    got = norm(torch.from_numpy(rows.astype(np.float32))).numpy()
    expected = (rows - rows.mean(0)) / np.sqrt(rows.var(0) + 1e-8)
    np.testing.assert_allclose(got, expected, atol=5e-3)


def test_before_the_first_merge_it_changes_nothing():
    rows = torch.tensor([[1.0, -2.0]])
    assert torch.equal(RunningNorm(2)(rows), rows)


def test_what_is_far_away_is_cut_off_and_what_never_varies_stays_finite():
    norm = RunningNorm(2)
    _merge(norm, np.array([[0.0, 7.0], [2.0, 7.0]]))
    got = norm(torch.tensor([[1e6, 7.0], [-1e6, 7.0]]))
    assert got.tolist() == [[LIMIT, 0], [-LIMIT, 0]]


def test_only_floats_are_normalised(rng):
    space = spaces.Dict(
        image=spaces.Box(0, 255, (4, 4, 3), np.uint8),
        kind=spaces.Discrete(3),
        speed=spaces.Box(-1, 1, (2, 2)),
        wide=spaces.Box(-1, 1, (3,), np.float64),
    )
    norm = ObsNorm(space)
    assert norm.keys == ["speed", "wide"]
    for part in norm.parts:
        _merge(part, rng.normal(3, 2, (50, len(part.mean))))
    obs = {
        "image": torch.zeros(2, 4, 4, 3, dtype=torch.uint8),
        "kind": torch.tensor([0, 2]),
        "speed": torch.full((2, 2, 2), 3.0),
        "wide": torch.full((2, 3), 3.0, dtype=torch.float64),
    }
    got = norm(obs)
    assert got["image"] is obs["image"]
    assert got["kind"] is obs["kind"]
    assert got["speed"].shape == (2, 4)
    assert got["wide"].dtype == torch.float32
    assert got["speed"].abs().max() < 0.7
    assert obs["speed"].min() == 3  # what came in is not written to


@pytest.mark.parametrize("space", [spaces.Discrete(3), spaces.Box(0, 255, (4, 4), np.uint8)])
def test_an_observation_without_floats_passes(space):
    norm = ObsNorm(space)
    obs = torch.zeros(2, *space.shape, dtype=torch.uint8)
    assert norm(obs) is obs
    assert norm.keys == []


def test_its_numbers_are_saved_with_the_weights_and_not_learnt(rng):
    mine, other = ObsNorm(spaces.Box(-1, 1, (3,))), ObsNorm(spaces.Box(-1, 1, (3,)))
    _merge(mine.parts[0], rng.normal(5, 3, (100, 3)))
    flat = FlatParameters(mine)
    assert flat.vector.size == 0
    FlatParameters(other).load_state_dict(flat.state_dict())
    rows = torch.from_numpy(rng.normal(size=(4, 3)))
    assert torch.equal(mine(rows), other(rows))
