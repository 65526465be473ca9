"""`compare`: whether the runs of one side are better than those of another, over seeds."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from muster.errors import OptionError
from muster.report.runs import RunSummary, find_runs
from muster.report.statistics import Interval, bootstrap, iqm, probability_of_improvement

ENOUGH = 5
"""Minimum number of seeds of each side for a meaningful interval."""

Places = str | Path | Sequence[str | Path]


@dataclass(frozen=True)
class Side:
    """The runs of one side."""

    algo: str
    """The algorithm of the runs; several are joined by `+`."""
    runs: tuple[str, ...]
    left_out: tuple[str, ...]
    """Runs without a return to compare, each with the reason."""
    returns: tuple[float, ...]
    iqm: float
    interval: Interval


@dataclass(frozen=True)
class Comparison:
    """The comparison of two sides. Intervals are 95 % stratified bootstrap intervals."""

    env: str
    score: str
    a: Side
    b: Side
    difference: float
    """IQM of A minus IQM of B."""
    difference_interval: Interval
    probability: float
    """The probability that a run of A has a higher return than a run of B."""
    probability_interval: Interval

    @property
    def enough_seeds(self) -> bool:
        """Whether each side has at least five runs."""
        return min(len(self.a.returns), len(self.b.returns)) >= ENOUGH

    @property
    def conclusion(self) -> str:
        """One plain sentence."""
        low, high = self.difference_interval
        if not self.enough_seeds:
            counts = f"{len(self.a.returns)} and {len(self.b.returns)} seeds"
            return f"too few seeds to conclude: {counts}, and {ENOUGH} of each are needed"
        if low > 0 or high < 0:
            return f"{'A' if low > 0 else 'B'} is better: the interval of the difference excludes 0"
        return "no difference is shown: its interval contains 0"

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        found = asdict(self)
        for side in ("a", "b"):
            found[side]["interval"] = list(getattr(self, side).interval)
        for name in ("difference_interval", "probability_interval"):
            found[name] = list(getattr(self, name))
        return {**found, "enough_seeds": self.enough_seeds, "conclusion": self.conclusion}


def compare(
    a: Places, b: Places, *, score: Literal["final", "best"] = "final", seed: int = 0
) -> Comparison:
    """Compare the returns of two sides, each several runs that differ in their seed.

    Args:
        a: Runs, or folders of runs.
        b: Runs, or folders of runs, of the other side, on the same environment.
        score: The return of the last evaluation, or of the best one. The best of many noisy
            evaluations favours the side with more of them.
        seed: The seed of the bootstrap.

    Raises:
        OptionError: Not comparable: different environments, a run on both sides, or no returns.
    """
    if score not in ("final", "best"):
        raise OptionError(
            f"score={score!r:.80} is not possible", "it must be final or best", 'score="final"'
        )
    first, second = (_found(each) for each in (a, b))
    shared = {run.path.resolve() for run in first} & {run.path.resolve() for run in second}
    if shared:
        raise OptionError(
            f"{min(shared)} is on both sides",
            "a run cannot be compared with itself",
            "leave it out on one side",
        )
    env = _one_env(first + second)
    one, other = _side(first, score, seed), _side(second, score, seed)

    def difference(x: Any, y: Any) -> Any:
        return iqm(x) - iqm(y)

    samples = np.array(one.returns), np.array(other.returns)
    return Comparison(
        env=env,
        score=score,
        a=one,
        b=other,
        difference=one.iqm - other.iqm,
        difference_interval=bootstrap(difference, *samples, seed=seed),
        probability=probability_of_improvement(*samples),
        probability_interval=bootstrap(probability_of_improvement, *samples, seed=seed),
    )


def _found(places: Places) -> list[RunSummary]:
    return find_runs(*([places] if isinstance(places, str | Path) else places))


def _one_env(found: list[RunSummary]) -> str:
    envs = sorted({run.env or "an unknown environment" for run in found})
    if len(envs) == 1:
        return envs[0]
    raise OptionError(
        f"runs of different environments cannot be compared: {', '.join(envs[:5])}",
        "returns of different environments are not comparable",
        f"only runs of {envs[0]}",
    )


def _side(found: list[RunSummary], score: str, seed: int) -> Side:
    """Return the statistics of a side; only runs that have ended count."""
    left_out, returns, counted = [], [], []
    for run in found:
        value = run.final_return if score == "final" else run.best_return
        if run.status in ("running", "failed"):
            left_out.append(f"{run.name}: {run.status}")
        elif value is None:
            left_out.append(f"{run.name}: no evaluation")
        else:
            counted.append(run)
            returns.append(value)
    if not counted:
        raise OptionError(
            f"no run of {found[0].name}{' ...' if len(found) > 1 else ''} has a return to compare",
            f"{left_out[0]:.200}",
            "runs that have ended, with an evaluation",
        )
    return Side(
        algo="+".join(sorted({run.algo or "?" for run in counted})),
        runs=tuple(run.name for run in counted),
        left_out=tuple(left_out),
        returns=tuple(returns),
        iqm=float(iqm(returns)),
        interval=bootstrap(iqm, returns, seed=seed),
    )
