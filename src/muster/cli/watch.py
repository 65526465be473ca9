"""`muster watch RUN`: a shell over `muster.report.live.LivePage`."""

from collections.abc import Sequence
from dataclasses import dataclass

import tyro

from muster.cli.arguments import parse
from muster.shown import shown


@dataclass(frozen=True)
class WatchOptions:
    """Show the page of a run live, in a browser on this machine.

    A button there asks the run to save and stop.

    Ctrl-C ends the page and leaves the run alone.
    """

    run: tyro.conf.Positional[str]
    """A run directory."""


def main(argv: Sequence[str]) -> int:
    """Serve the page until a signal arrives."""
    options = parse(WatchOptions, argv, "muster watch")
    from muster.report.live import LivePage

    with LivePage(options.run) as live:
        print(f"{shown(options.run)}, live; Ctrl-C ends this, not the run:", flush=True)
        print(live.url, flush=True)
        live.serve()
    return 0
