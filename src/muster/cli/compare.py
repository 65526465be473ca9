"""`muster compare A... --vs B...`: a shell over `muster.compare`."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import tyro

from muster import columns
from muster.cli.arguments import parse
from muster.errors import OptionError

if TYPE_CHECKING:
    from muster.report.comparing import Comparison, Side
    from muster.report.statistics import Interval

_PROG = "muster compare"


@dataclass(frozen=True)
class CompareOptions:
    """Compare the returns of two sides, each several runs that differ in their seed.

    Prints interquartile means, with 95 % stratified bootstrap intervals.
    """

    a: tyro.conf.Positional[tuple[str, ...]] = ()
    """Runs, or folders of runs, of the first side."""
    vs: tuple[str, ...] = ()
    """Runs, or folders of runs, of the second side, on the same environment."""
    score: Literal["final", "best"] = "final"
    """The return of the last evaluation, or of the best one."""
    json: bool = False
    """Print JSON."""


def main(argv: Sequence[str]) -> int:
    """Compare and print."""
    options = parse(CompareOptions, argv, _PROG)
    for given, which in ((options.a, "runs"), (options.vs, "runs to compare with (--vs)")):
        if not given:
            raise OptionError(
                f"{_PROG} needs {which}",
                "a comparison has two sides, each of runs or folders of runs",
                f"{_PROG} runs/a --vs runs/b",
            )
    from muster.report.comparing import compare

    found = compare(options.a, options.vs, score=options.score)
    if options.json:
        print(json.dumps(found.as_json(), indent=2))
    else:
        print("\n".join(_lines(found)))
    return 0


def _lines(found: "Comparison") -> list[str]:
    rows = [["", "algo", "runs", "IQM", "95 % interval"]]
    for letter, side in (("A", found.a), ("B", found.b)):
        algo = columns.cut(columns.harmless(side.algo), 20)
        count = str(len(side.returns))
        rows.append([letter, algo, count, f"{side.iqm:,.1f}", _interval(side.interval)])
    difference = f"{found.difference:+,.1f}  {_interval(found.difference_interval)}"
    low, high = found.probability_interval
    return [
        f"{columns.harmless(found.env)}: return of the {found.score} evaluation",
        *columns.lines(rows, right=(2, 3)),
        f"A - B: {difference}",
        f"a run of A beats a run of B: {found.probability:.0%}  [{low:.0%}, {high:.0%}]",
        *(f"left out: {columns.harmless(each)}" for each in _left_out(found.a, found.b)),
        found.conclusion,
    ]


def _interval(interval: "Interval") -> str:
    return f"[{interval.low:,.1f}, {interval.high:,.1f}]"


def _left_out(*sides: "Side") -> list[str]:
    return [each for side in sides for each in side.left_out]
