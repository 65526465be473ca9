"""PPO's loss, its derivative and the samplers, against numbers by hand and torch in float64."""

import math

import numpy as np
import pytest
import torch
from torch.distributions import Categorical, Normal

from muster.rl_utils.losses.ppo import (
    best_actions,
    best_actions_numpy,
    ppo_loss,
    ppo_loss_numpy,
    sample_actions,
    sample_actions_numpy,
)

HEADS = [(2,), (1,), (19,), (3, 1, 5), None]
"""Sizes of categories; None for a Gaussian of three numbers."""
WIDTH = 3
LOSSES = pytest.mark.parametrize("compute", [ppo_loss, ppo_loss_numpy], ids=["kernel", "twin"])
SAMPLERS = pytest.mark.parametrize(
    "sample", [sample_actions, sample_actions_numpy], ids=["kernel", "twin"]
)
BESTS = pytest.mark.parametrize("best", [best_actions, best_actions_numpy], ids=["kernel", "twin"])
EVERY_HEAD = pytest.mark.parametrize("sizes", HEADS, ids=str)
SCALE, CLIP, VALUE_COEF, ENTROPY_COEF = 0.01, 0.2, 0.7, 0.03


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def _ints(sizes):
    return np.array(sizes or (), np.int64)


def _outputs(rng, sizes, n):
    return rng.normal(size=(n, sum(sizes) if sizes else 2 * WIDTH)).astype(np.float32)


def _rollout(rng, sizes, n, outputs_then):
    """Return action, logp, value, advantage and target, drawn from somewhat other outputs."""
    width = len(sizes) if sizes else WIDTH
    noise = rng.random((n, width)) if sizes else rng.normal(size=(n, width))
    action = np.zeros((n, width), np.int64 if sizes else np.float32)
    logp = np.zeros(n, np.float32)
    sample_actions(outputs_then, noise.astype(np.float32), not sizes, _ints(sizes), action, logp)
    return action, logp, *rng.normal(size=(3, n)).astype(np.float32)


def _loss(compute, outputs, value, rows, rollout, sizes, value_clip=0.0, scale=SCALE, clip=CLIP):
    d_outputs, d_value = np.full_like(outputs, np.nan), np.full_like(value, np.nan)
    stats = np.zeros(5)
    numbers = (scale, clip, value_clip, VALUE_COEF, ENTROPY_COEF)
    arrays = (d_outputs, d_value, stats)
    bad = compute(outputs, value, rows, *rollout, not sizes, _ints(sizes), *numbers, *arrays)
    assert bad == -1
    return arrays


def _case(rng, sizes, n=200, m=77):
    """Return outputs and values of m rows, which rows they are, and a rollout of n."""
    then = _outputs(rng, sizes, n)
    rollout = _rollout(rng, sizes, n, then)
    rows = rng.permutation(n)[:m]
    now = then[rows] + rng.normal(0, 0.3, (m, then.shape[1])).astype(np.float32)
    value = rollout[2][rows] + rng.normal(0, 0.4, m).astype(np.float32)
    return now, value, rows, rollout


def _logp_and_entropy(outputs, action, sizes):
    if not sizes:
        normal = Normal(outputs[:, :WIDTH], outputs[:, WIDTH:].exp())
        return normal.log_prob(action).sum(1), normal.entropy().sum(1)
    parts = [Categorical(logits=x) for x in outputs.split(list(sizes), dim=1)]
    logps = [part.log_prob(action[:, j]) for j, part in enumerate(parts)]
    return sum(logps), sum(part.entropy() for part in parts)


@LOSSES
@EVERY_HEAD
@pytest.mark.parametrize("value_clip", [0.0, 0.25])
def test_derivative_and_sums_are_those_of_autograd(rng, compute, sizes, value_clip):
    outputs, value, rows, rollout = _case(rng, sizes)
    got = _loss(compute, outputs, value, rows, rollout, sizes, value_clip)
    x, v = (torch.from_numpy(a).double().requires_grad_() for a in (outputs, value))
    action, logp, old, advantage, target = (torch.from_numpy(a[rows]) for a in rollout)
    new, entropy = _logp_and_entropy(x, action, sizes)
    log_ratio = new - logp
    ratio = log_ratio.exp()
    policy = torch.where(
        advantage >= 0,
        -advantage * ratio.clamp(max=1 + CLIP),
        -advantage * ratio.clamp(min=1 - CLIP),
    )
    error = (v - target) ** 2
    if value_clip:
        kept = torch.minimum(torch.maximum(v, old - value_clip), old + value_clip)
        error = torch.maximum(error, (kept - target) ** 2)
    clipped = ((ratio - 1).abs() > CLIP).double()
    assert 0.1 < clipped.mean() < 0.9 or sizes == (1,)
    terms = [policy, error / 2, entropy, ratio - 1 - log_ratio, clipped]
    sums = [SCALE * term.sum() for term in terms]
    (sums[0] + VALUE_COEF * sums[1] - ENTROPY_COEF * sums[2]).backward()
    np.testing.assert_allclose(got[0], x.grad, rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(got[1], v.grad, rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(got[2], [s.item() for s in sums], rtol=2e-6, atol=1e-7)


@LOSSES
@EVERY_HEAD
def test_kernel_and_twin_agree_and_add_to_the_sums(rng, compute, sizes):
    outputs, value, rows, rollout = _case(rng, sizes)
    expected = _loss(ppo_loss_numpy, outputs, value, rows, rollout, sizes, 0.25)
    got = _loss(compute, outputs, value, rows, rollout, sizes, 0.25)
    for mine, theirs in zip(got, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-8)
    half = [np.zeros_like(outputs[:5]), np.zeros(5, np.float32), np.arange(5.0)]
    numbers = (SCALE, CLIP, 0.25, VALUE_COEF, ENTROPY_COEF)
    both = (not sizes, _ints(sizes))
    assert compute(outputs[:5], value[:5], rows[:5], *rollout, *both, *numbers, *half) == -1
    alone = _loss(compute, outputs[:5], value[:5], rows[:5], rollout, sizes, 0.25)[2]
    np.testing.assert_allclose(half[2], np.arange(5) + alone)
    assert np.array_equal(half[0], got[0][:5])


def _one_row(compute, ratio, advantage, value=0.0, old=0.0, target=0.0, value_clip=0.0):
    """The loss of one even choice of two, whose probability was 0.5 / ratio before."""
    arrays = ([[0.0, 0.0]], [value])
    outputs, values = (np.array(x, np.float32) for x in arrays)
    floats = (math.log(0.5 / ratio), old, advantage, target)
    rollout = (np.zeros((1, 1), np.int64), *(np.array([x], np.float32) for x in floats))
    rows = np.zeros(1, np.int64)
    return _loss(compute, outputs, values, rows, rollout, (2,), value_clip, scale=1.0)


@LOSSES
@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "by_logp"),
    [
        (1.0, 2.0, -2.0, -2.0),
        (1.1, 2.0, -2.2, -2.2),
        (1.5, 2.0, -2.4, 0.0),  # a good action is likely enough
        (0.5, 2.0, -1.0, -1.0),  # a good one got too unlikely: back
        (0.5, -2.0, 1.6, 0.0),  # a bad one is unlikely enough
        (1.5, -2.0, 3.0, 3.0),
        (0.9, -2.0, 1.8, 1.8),
    ],
)
def test_the_ratio_is_clipped_on_one_side(compute, ratio, advantage, loss, by_logp):
    d_outputs, _, stats = _one_row(compute, ratio, advantage)
    assert stats[0] == pytest.approx(loss, rel=1e-6)
    # Entropy is flat at even odds, and logp of the first rises with its logit by 1 - 1 / 2.
    np.testing.assert_allclose(d_outputs, [[by_logp / 2, -by_logp / 2]], rtol=1e-5, atol=1e-7)
    assert stats[2] == pytest.approx(math.log(2), rel=1e-6)
    assert stats[3] == pytest.approx(ratio - 1 - math.log(ratio), abs=1e-6)
    assert stats[4] == (abs(ratio - 1) > CLIP)


@LOSSES
@pytest.mark.parametrize(
    ("value", "value_clip", "loss", "slope"),
    [
        (3.0, 0.0, 2.0, 2.0),
        (3.0, 0.5, 2.0, 2.0),  # old 2 + 0.5 is nearer to the target 1: the larger error counts
        (0.9, 0.5, 0.125, 0.0),  # from 2 to 0.9 is further than it may go in one loop
        (1.7, 0.5, 0.245, 0.7),
        (-4.0, 0.5, 12.5, -5.0),
    ],
)
def test_the_value_is_clipped_where_that_is_worse(compute, value, value_clip, loss, slope):
    arguments = dict(value=value, old=2.0, target=1.0, value_clip=value_clip)
    _, d_value, stats = _one_row(compute, 1.0, 1.0, **arguments)
    assert stats[1] == pytest.approx(loss, rel=1e-5)
    np.testing.assert_allclose(d_value, [VALUE_COEF * slope], rtol=1e-5)


@LOSSES
@EVERY_HEAD
def test_ratios_are_one_for_the_outputs_that_acted(rng, compute, sizes):
    then = _outputs(rng, sizes, 100)
    rollout = _rollout(rng, sizes, 100, then)
    rows = rng.permutation(100)
    _, _, stats = _loss(compute, then[rows], rollout[2][rows], rows, rollout, sizes, clip=1e-6)
    if compute is ppo_loss:  # acting and learning share their code: the very same bits
        assert stats[4] == 0 and stats[3] == 0
    assert abs(stats[3]) < 1e-9


@LOSSES
@pytest.mark.parametrize("sizes", [(3, 2), None], ids=str)
def test_rows_and_actions_that_do_not_exist_are_named(rng, compute, sizes):
    outputs, value, rows, rollout = _case(rng, sizes)
    arrays = (np.zeros_like(outputs), np.zeros_like(value), np.zeros(5))

    def first_bad(rows, rollout):
        numbers = (SCALE, CLIP, 0.0, VALUE_COEF, ENTROPY_COEF)
        head = (not sizes, _ints(sizes))
        return compute(outputs, value, rows, *rollout, *head, *numbers, *arrays)

    assert first_bad(rows, rollout) == -1
    for wrong in (-1, 200):
        changed = rows.copy()
        changed[[5, 9]] = wrong
        assert first_bad(changed, rollout) == 5
    for column, wrong in ((0, 3), (1, 2), (1, -1)) if sizes else ():
        action = rollout[0].copy()
        action[rows[8], column] = wrong
        assert first_bad(rows, (action, *rollout[1:])) == 8


@LOSSES
@EVERY_HEAD
@pytest.mark.filterwarnings("ignore:invalid value")
def test_nan_and_infinity_come_through(rng, compute, sizes):
    outputs, value, rows, rollout = _case(rng, sizes)
    for bad in (np.nan, np.inf):
        broken = outputs.copy()
        broken[3, 0] = bad
        d_outputs, _, stats = _loss(compute, broken, value, rows, rollout, sizes)
        assert not np.isfinite(d_outputs[3]).all() or (bad, sizes) == (np.inf, None)
        assert not np.isfinite(stats).all()
        assert np.isfinite(np.delete(d_outputs, 3, axis=0)).all()
        for field in (1, 3, 4):  # logp, advantage, target
            changed = [x.copy() for x in rollout]
            changed[field][rows[3]] = bad
            _, d_value, stats = _loss(compute, outputs, value, rows, changed, sizes)
            assert not np.isfinite(stats).all()
            assert field != 4 or not np.isfinite(d_value[3])


@SAMPLERS
@EVERY_HEAD
def test_samples_have_the_probability_that_is_written(rng, sample, sizes):
    outputs = _outputs(rng, sizes, 50)
    width = len(sizes) if sizes else WIDTH
    noise = rng.random((50, width)) if sizes else rng.normal(size=(50, width))
    action = np.zeros((50, width), np.int64 if sizes else np.float32)
    logp = np.zeros(50, np.float32)
    sample(outputs, noise.astype(np.float32), not sizes, _ints(sizes), action, logp)
    x = torch.from_numpy(outputs).double()
    expected, _ = _logp_and_entropy(x, torch.from_numpy(action), sizes)
    np.testing.assert_allclose(logp, expected, rtol=1e-5, atol=2e-6)
    if not sizes:
        wanted = outputs[:, :WIDTH] + np.exp(outputs[:, WIDTH:]) * noise
        np.testing.assert_allclose(action, wanted, rtol=1e-5, atol=1e-6)


@SAMPLERS
def test_categories_come_as_often_as_they_should(sample):
    n = 1000
    logits = np.tile(np.log(np.array([1, 2, 5, 2, 3, 7], np.float32)), (n, 1))
    noise = np.stack([(np.arange(n) + 0.5) / n] * 2, axis=1).astype(np.float32)
    action, logp = np.zeros((n, 2), np.int64), np.zeros(n, np.float32)
    sample(logits, noise, False, np.array([4, 2]), action, logp)
    assert np.bincount(action[:, 0]).tolist() == [100, 200, 500, 200]
    assert np.bincount(action[:, 1]).tolist() == [300, 700]
    assert (np.diff(action, axis=0) >= 0).all()


@SAMPLERS
def test_what_cannot_be_is_never_drawn(sample):
    logits = np.array([[-200, 0, -200, 0.5, -200]] * 3, np.float32)
    noise = np.array([[0.0], [np.nextafter(np.float32(1), np.float32(0))], [1.0]], np.float32)
    action, logp = np.zeros((3, 1), np.int64), np.zeros(3, np.float32)
    sample(logits, noise, False, np.array([5]), action, logp)
    assert action[:, 0].tolist() == [1, 3, 3]


@SAMPLERS
@pytest.mark.filterwarnings("ignore:invalid value")
def test_an_action_from_nan_exists_but_its_probability_is_nan(sample):
    logits = np.array([[np.nan, 0, 0], [0, np.nan, 0], [0, 0, np.inf]], np.float32)
    action, logp = np.full((3, 1), 99), np.zeros(3, np.float32)
    sample(logits, np.full((3, 1), 0.9, np.float32), False, np.array([3]), action, logp)
    assert np.isnan(logp).all() and ((action >= 0) & (action < 3)).all()


@BESTS
def test_the_best_action_is_the_likeliest(best):
    logits = np.array([[1, 3, 2, 5, 4], [0, 0, 1, 4, 5], [1, np.nan, np.nan, 0, 0]], np.float32)
    action = np.zeros((3, 2), np.int64)
    best(logits, False, np.array([3, 2]), action)
    assert action.tolist() == [[1, 0], [2, 1], [1, 0]]
    means = np.zeros((3, 2), np.float32)
    best(logits[:, :4].copy(), True, np.zeros(0, np.int64), means)
    assert np.array_equal(means, logits[:, :2], equal_nan=True)
