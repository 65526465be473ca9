"""Statistics over a handful of runs, as defined by Agarwal et al. (2021) and their `rliable`.

    iqm                         mean of the middle half of the scores
    bootstrap                   a confidence interval, runs resampled within each task
    probability_of_improvement  how likely a run of X beats a run of Y
    performance_profile         the share of runs above each threshold

Scores are arrays [runs] of one task, or [runs, tasks]. Everything is seeded: the same scores give
the same interval.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from muster.errors import OptionError

Scores = NDArray[np.float64]

REPETITIONS = 2_000
"""Number of resamples of an interval: enough that its edges hardly depend on the seed."""


class Interval(NamedTuple):
    """A confidence interval, by the percentile method."""

    low: float
    high: float


def iqm(scores: ArrayLike, axis: int | None = None) -> Scores:
    """Return the interquartile mean: a quarter of the scores, rounded down, is cut from each end.

    Args:
        scores: Numbers; at least one along `axis`.
        axis: The axis to average over; None for all scores together.
    """
    ordered = _checked(scores)
    if axis is None:
        ordered, axis = ordered.ravel(), 0
    ordered = np.sort(ordered, axis=axis)
    count = ordered.shape[axis]
    cut = count // 4
    middle = np.take(ordered, np.arange(cut, count - cut), axis=axis)
    mean: Scores = middle.mean(axis=axis)
    return mean


def bootstrap(
    statistic: Callable[..., ArrayLike],
    *samples: ArrayLike,
    confidence: float = 0.95,
    repetitions: int = REPETITIONS,
    seed: int = 0,
) -> Interval:
    """Return a stratified bootstrap interval of a statistic.

    Args:
        statistic: Maps one resample of each of `samples` to a number.
        *samples: Scores [runs] or [runs, tasks]. Runs are drawn with replacement, separately for
            each task and each sample.
        confidence: Between 0 and 1.
        repetitions: Number of resamples.
        seed: Determines the resamples.
    """
    rng = np.random.default_rng(seed)
    arrays = [_by_task(each) for each in samples]
    found = np.empty(repetitions)
    for repetition in range(repetitions):
        found[repetition] = statistic(*(_resampled(each, rng) for each in arrays))
    return Interval(*(float(each) for each in _percentiles(found, confidence)))


def iqm_band(
    curves: ArrayLike, confidence: float = 0.95, repetitions: int = 400, seed: int = 0
) -> tuple[Scores, Scores, Scores]:
    """Return IQM, low and high at each point of curves [runs, points].

    The interval is that of `bootstrap`, but resamples whole curves, because the points of one run
    are correlated.
    """
    values = _checked(curves)
    rng = np.random.default_rng(seed)
    drawn = rng.integers(len(values), size=(repetitions, len(values)))
    found = np.empty((repetitions, values.shape[1]))
    for repetition, chosen in enumerate(drawn):
        found[repetition] = iqm(values[chosen], axis=0)
    low, high = _percentiles(found, confidence)
    return iqm(values, axis=0), low, high


def probability_of_improvement(x: ArrayLike, y: ArrayLike) -> float:
    """Return the probability that a run of X scores higher than one of Y; a tie counts half.

    This is the Mann-Whitney U statistic over the number of pairs, averaged over tasks.

    Args:
        x: Scores [runs] or [runs, tasks].
        y: Scores of the other side, with as many tasks; the number of runs may differ.
    """
    first, second = _by_task(x), _by_task(y)
    if first.shape[1] != second.shape[1]:
        raise OptionError(
            f"scores of {first.shape[1]} and of {second.shape[1]} tasks cannot be compared",
            "runs are compared task by task",
            "scores of the same tasks, in the same order",
        )
    difference = first[:, None, :] - second[None, :, :]
    return float(np.mean((difference > 0) + 0.5 * (difference == 0)))


def performance_profile(scores: ArrayLike, thresholds: ArrayLike) -> Scores:
    """Return the share of runs, over all tasks, that score above each threshold."""
    flat = _checked(scores).ravel()
    limits = np.asarray(thresholds, dtype=np.float64)
    share: Scores = (flat[:, None] > limits.ravel()[None, :]).mean(axis=0)
    return share


def _checked(scores: ArrayLike) -> Scores:
    array = np.asarray(scores, dtype=np.float64)
    if array.size == 0 or array.ndim == 0 or not np.isfinite(array).all():
        raise OptionError(
            f"{array.size} scores of shape {array.shape} have no statistics",
            "there are no scores, or some are NaN or infinite",
            "one finite number for each run",
        )
    return array


def _by_task(scores: ArrayLike) -> Scores:
    array = _checked(scores)
    return array[:, None] if array.ndim == 1 else array


def _resampled(scores: Scores, rng: np.random.Generator) -> Scores:
    runs, tasks = scores.shape
    return scores[rng.integers(runs, size=(runs, tasks)), np.arange(tasks)]


def _percentiles(found: Scores, confidence: float) -> Scores:
    if not 0 < confidence < 1:
        raise OptionError(
            f"confidence={confidence!r} is not possible",
            "it must be between 0 and 1",
            "confidence=0.95",
        )
    tail = 50 * (1 - confidence)
    edges: Scores = np.percentile(found, [tail, 100 - tail], axis=0)
    return edges
