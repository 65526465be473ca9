"""`muster runs [DIR]`: a shell over `muster.runs`."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import tyro

from muster import columns
from muster.cli.arguments import parse
from muster.cli.wording import as_typed
from muster.errors import OptionError

if TYPE_CHECKING:
    from muster.report.runs import RunSummary

_PROG = "muster runs"
_TITLES = ("status", "algo", "env", "seed", "steps", "best", "final", "run")
_RIGHT = (3, 4, 5, 6)
_LONGEST = {1: 9, 2: 14, 3: 6}
"""Maximum number of characters of these columns; the last column gets the rest."""


@dataclass(frozen=True)
class RunsOptions:
    """List the runs in a folder, the newest last.

    best and final are mean returns of evaluations: the highest, and the last.
    """

    dir: tyro.conf.Positional[str] = "runs"
    """The folder to search, at any depth."""
    algo: str | None = None
    """Only runs of this algorithm."""
    env: str | None = None
    """Only runs of this environment."""
    best: int | None = None
    """Only this many, with the highest returns; the best is last."""
    json: bool = False
    """Print JSON, with all settings."""
    diff: tuple[str, str] | None = None
    """Two runs: show the settings in which they differ."""


def main(argv: Sequence[str]) -> int:
    """Print the list."""
    options = parse(RunsOptions, argv, _PROG)
    from muster.report.listing import runs

    if options.diff is not None:
        return _show_differences(*options.diff, as_json=options.json)
    try:
        found = runs(options.dir, algo=options.algo, env=options.env, best=options.best)
    except OptionError as error:
        raise as_typed(error, _PROG, ("algo", "env", "best")) from None
    if options.json:
        print(json.dumps([run.as_json() for run in found], indent=2))
    else:
        print("\n".join(_table(found)))
        for run in found:
            for problem in run.problems:
                print(columns.harmless(f"{run.name}: {problem}"))
    return 0


def _table(found: "Sequence[RunSummary]") -> list[str]:
    rows = [list(_TITLES)]
    for run in found:
        texts = (run.status, run.algo or "-", run.env or "-")
        row = [*map(columns.harmless, texts), "-" if run.seed is None else str(run.seed)]
        row += [columns.short_count(run.env_steps), *_returns(run), columns.harmless(run.name)]
        rows.append([columns.cut(cell, _LONGEST.get(k, 200)) for k, cell in enumerate(row)])
    taken = sum(max(len(row[k]) for row in rows) + columns.GAP for k in range(len(_TITLES) - 1))
    room = columns.width() - taken
    for row in rows:
        row[-1] = columns.cut(row[-1], room, keep_end=True)
    return columns.lines(rows, _RIGHT)


def _returns(run: "RunSummary") -> list[str]:
    return [columns.short_number(each) for each in (run.best_return, run.final_return)]


def _show_differences(first: str, second: str, *, as_json: bool) -> int:
    from muster.report.listing import differences
    from muster.report.runs import plain, read_run

    pair = read_run(first), read_run(second)
    found = differences(*pair)
    if as_json:
        sides = {name: {"a": plain(a), "b": plain(b)} for name, (a, b) in found.items()}
        print(json.dumps(sides, indent=2))
        return 0
    if not found:
        print("no setting differs")
        return 0
    rows = [["setting", "A", "B"]]
    rows += [
        [columns.cut(columns.harmless(each), 25) for each in (k, *v)] for k, v in found.items()
    ]
    for letter, run in zip("AB", pair, strict=True):
        print(f"{letter}  {columns.harmless(run.name)}")
    print("\n".join(columns.lines(rows)))
    return 0
