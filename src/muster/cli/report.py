"""`muster report RUN...`: a shell over `muster.report.page.write_report`."""

from collections.abc import Sequence
from dataclasses import dataclass

import tyro

from muster.cli.arguments import parse
from muster.errors import OptionError
from muster.shown import shown

_PROG = "muster report"


@dataclass(frozen=True)
class ReportOptions:
    """Write one HTML page about runs: curves, intervals, timing, settings, system.

    It is one file that loads nothing from anywhere.
    """

    run: tyro.conf.Positional[tuple[str, ...]] = ()
    """Runs, or folders of runs. Those that differ only in their seed are one curve."""
    out: str = "report.html"
    """The file to write. An older report is replaced, another file is not."""


def main(argv: Sequence[str]) -> int:
    """Write, and say where."""
    options = parse(ReportOptions, argv, _PROG)
    if not options.run:
        raise OptionError(
            f"{_PROG} does not say which run", f"it is given after {_PROG}", f"{_PROG} runs/first"
        )
    from muster.report.page import write_report

    print(shown(write_report(*options.run, out=options.out)))
    return 0
