"""Which trials to stop early, compared with the returns of others after as many steps.

A curve is a list of (env_step, return) of a trial's evaluations. A rule only decides to stop; the
trial saves and can be resumed by hand.
"""

import statistics
from collections.abc import Callable, Sequence

Evaluations = list[tuple[int, float]]
Rule = Callable[[Evaluations, Sequence[Evaluations], int], bool]

FIRST_TRIALS = 5
"""Trials that must have reached a step before another is compared with them."""
FACTOR = 3
"""One in so many of the trials that reach a rung of ASHA continues."""


def below_median(own: Evaluations, others: Sequence[Evaluations], total: int) -> bool:
    """Whether the best return of a trial so far is below the median of the others at its step.

    Args:
        own: The evaluations of the trial; with fewer than two, it continues.
        others: The evaluations of the other trials.
        total: The steps of a whole trial.
    """
    if len(own) < 2 or own[-1][0] >= total:
        return False
    reached = [best for each in others if (best := _best(each, own[-1][0])) is not None]
    mine = max(value for _, value in own)
    return len(reached) >= FIRST_TRIALS and mine < statistics.median(reached)


def outside_top_third(own: Evaluations, others: Sequence[Evaluations], total: int) -> bool:
    """Asynchronous successive halving (Li et al., 2020), as a rule that stops trials.

    Rungs are at 1/9 and 1/3 of the steps. A trial that reaches a rung continues if it is in the top
    third of all trials that have reached it by then; the rule needs at least three.
    """
    if not own or own[-1][0] >= total:
        return False
    for rung in (total // FACTOR**2, total // FACTOR):
        mine = _at(own, rung)
        if mine is None:
            return False
        there = [value for each in others if (value := _at(each, rung)) is not None] + [mine]
        if len(there) >= FACTOR and sorted(there, reverse=True)[len(there) // FACTOR - 1] > mine:
            return True
    return False


RULES: dict[str, Rule | None] = {
    "none": None,
    "median": below_median,
    "asha": outside_top_third,
    "pbt": None,  # replaces trials, and stops none
}


def _best(curve: Evaluations, step: int) -> float | None:
    """Return the best return up to a step, if the trial was also evaluated at or after it."""
    if not curve or curve[-1][0] < step:
        return None
    return max((value for at, value in curve if at <= step), default=None)


def _at(curve: Evaluations, step: int) -> float | None:
    """Return the best return up to the first evaluation at or after a step."""
    reached = next((place for place, (at, _) in enumerate(curve) if at >= step), None)
    return None if reached is None else max(value for _, value in curve[: reached + 1])
