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

    The page is one file that loads nothing from elsewhere.
    """

    run: tyro.conf.Positional[tuple[str, ...]] = ()
    """Runs, or folders of runs. Runs that differ only in their seed form one curve."""
    out: str = "report.html"
    """The file to write. It replaces an older report, but no other file."""


def main(argv: Sequence[str]) -> int:
    """Write the page, and print its path."""
    options = parse(ReportOptions, argv, _PROG)
    if not options.run:
        raise OptionError(
            f"{_PROG} needs a run", f"it is given after {_PROG}", f"{_PROG} runs/first"
        )
    from muster.report.page import write_report

    print(shown(write_report(*options.run, out=options.out)))
    return 0
