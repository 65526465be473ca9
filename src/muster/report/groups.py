"""Runs that differ only in their seed form a group: one curve, with an interval."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from muster.report.chart import Line, Numbers
from muster.report.listing import differences
from muster.report.runs import RunSummary
from muster.report.statistics import iqm_band
from muster.run.curves import Curve, Curves

_POINTS = 120
"""Number of points of a group's curve."""


@dataclass(frozen=True)
class SeedGroup:
    """Runs with the same settings except the seed."""

    label: str
    """Distinguishes the group from the others."""
    colour: int
    runs: tuple[RunSummary, ...]
    curves: tuple[Curves, ...]

    @property
    def env(self) -> str:
        """The environment of all runs of the group."""
        return self.runs[0].env or "unknown environment"

    def lines(self, metric: str) -> list[Line]:
        """Return the curves of a metric: the group's, and a faint one for each seed."""
        found = [
            (run, curves.metrics[metric])
            for run, curves in zip(self.runs, self.curves, strict=True)
            if metric in curves.metrics
        ]
        seeds = [_line(curve, f"seed {run.seed}", self.colour, faint=True) for run, curve in found]
        if len(seeds) < 2:
            return [_line(curve, self.label, self.colour) for _, curve in found]
        middle = _middle(self.label, self.colour, seeds)
        return seeds if middle is None else [*seeds, middle]


def grouped(runs: Sequence[RunSummary]) -> list[SeedGroup]:
    """Return the groups of some runs, in the order of their first run."""
    found: dict[str, list[RunSummary]] = {}
    for run in runs:
        found.setdefault(repr((run.env, run.algo, sorted(run.options.items()))), []).append(run)
    labels = _labels([members[0] for members in found.values()])
    return [
        SeedGroup(label, colour, tuple(members), tuple(run.curves() for run in members))
        for colour, (label, members) in enumerate(zip(labels, found.values(), strict=True))
    ]


def _labels(firsts: Sequence[RunSummary]) -> list[str]:
    """Return labels that distinguish runs: the algorithm, and the settings that differ."""
    labels = []
    for run in firsts:
        alike = [each for each in firsts if (each.env, each.algo) == (run.env, run.algo)]
        differing = [name for name in differences(*alike) if name != "seed"]
        settings = [f"{name}={run.options.get(name)}" for name in differing[:3]]
        label = " ".join([run.algo or "unknown algorithm", *settings])
        labels.append(label if len(label) <= 60 else f"{label[:57]}...")
    return [
        label if labels.count(label) == 1 else f"{label} ({place + 1})"
        for place, label in enumerate(labels)
    ]


def _line(curve: Curve, label: str, colour: int, *, faint: bool = False) -> Line:
    order = np.argsort(curve.env_step, kind="stable")
    x, y = curve.env_step[order].astype(float), curve.value[order]
    return Line(label, colour, x, y, faint=faint)


def _middle(label: str, colour: int, seeds: Sequence[Line]) -> Line | None:
    """Return the interquartile mean of several seeds, where all of them have values."""
    start, end = max(line.x[0] for line in seeds), min(line.x[-1] for line in seeds)
    if start > end:
        return None
    at: Numbers = np.unique(np.linspace(start, end, _POINTS))
    if all(len(line.x) <= _POINTS for line in seeds):  # only points at which one was measured
        measured = np.unique(np.concatenate([line.x for line in seeds]))
        at = measured[(start <= measured) & (measured <= end)]
    curves = np.stack([np.interp(at, line.x, line.y) for line in seeds])
    middle, low, high = iqm_band(np.clip(curves, -1e100, 1e100))
    return Line(f"{label}, IQM of {len(seeds)}", colour, at, middle, low, high)
