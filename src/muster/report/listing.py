"""`runs`: lists the runs in a folder by algorithm, environment and return; their differences."""

import math
from pathlib import Path
from typing import Any

from muster.errors import OptionError
from muster.report.runs import RunSummary, find_runs
from muster.spelling import nearest

ABSENT = "-"
"""Shown for a setting that a run does not have."""


def runs(
    folder: str | Path = "runs",
    *,
    algo: str | None = None,
    env: str | None = None,
    best: int | None = None,
) -> list[RunSummary]:
    """Return the runs in a folder, the newest last.

    Args:
        folder: The folder to search, at any depth; or one run.
        algo: Only runs of this algorithm.
        env: Only runs of this environment.
        best: Only this many, with the highest returns; the best is last.

    Raises:
        OptionError: There is no such folder, no run in it, or none that matches.
    """
    found = find_runs(folder)
    for option, value, own in (
        ("algo", algo, [run.algo for run in found]),
        ("env", env, [run.env for run in found]),
    ):
        if value is not None and value not in own:
            there = sorted({each for each in own if each is not None})
            near = nearest(value, there) or (there[0] if there else "...")
            raise OptionError(
                f"there is no run with {option}={value!r:.80}",
                f"there are runs of {', '.join(there[:10]) or 'nothing that is known'}",
                f"{option}={near!r}",
            )
    chosen = [run for run in found if (algo in (None, run.algo)) and (env in (None, run.env))]
    if best is None:
        return chosen
    if type(best) is not int or best < 1:
        raise OptionError(
            f"best={best!r} is not possible", "it must be the number of runs to show", "best=3"
        )
    by_return = sorted(chosen, key=lambda run: _score(run.best_return))
    return by_return[-best:]


def _score(value: float | None) -> float:
    return -math.inf if value is None else value


def differences(*compared: RunSummary) -> dict[str, list[Any]]:
    """Return the settings that differ between runs, with the value of each run.

    They include algorithm, environment and seed. A setting that a run does not have is `ABSENT`.
    """
    settings = [
        {"algo": run.algo, "env": run.env, "seed": run.seed, **run.options} for run in compared
    ]
    names = dict.fromkeys(name for each in settings for name in each)
    rows = {name: [each.get(name, ABSENT) for each in settings] for name in names}
    return {
        name: values
        for name, values in rows.items()
        if any(repr(value) != repr(values[0]) for value in values)
    }
