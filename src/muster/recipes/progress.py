"""Training progress: a bar with steps, steps/s, returns and the time left, or occasional lines.

The thread that trains redraws the bar, one line, at most five times a second. It leaves the
terminal as it is (no hidden cursor, no thread, no redirected output), so there is nothing to
restore, however a run ends.
"""

import os
import sys
import time
from collections.abc import Callable, Generator
from typing import TextIO

from rich.console import Console
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from muster.framework import Context

_BAR_EVERY_S = 0.2
_PLAIN_EVERY_S = 2.0
_LEAST_BAR = 6
_MOST_OWN = 3
"""The user's own metrics that fit on the line."""
_NEW_LINE = "\r\x1b[K"


class Progress:
    """A middleware that shows progress: a bar on a terminal, else occasional lines.

    Args:
        total: Total environment steps of the run.
        quiet: Show nothing.
        file: Where to show it; standard error by default.
    """

    def __init__(self, total: int, quiet: bool = False, file: TextIO | None = None) -> None:
        self._total = total
        self._quiet = quiet
        self._file = sys.stderr if file is None else file
        self._console = Console(file=self._file, highlight=False)
        self._in_place = self._console.is_terminal and not self._console.is_dumb_terminal
        self._every = _BAR_EVERY_S if self._in_place else _PLAIN_EVERY_S
        self._started = time.monotonic()
        self._first_step: int | None = None
        self._shown_at = -_PLAIN_EVERY_S
        self._return: float | None = None
        self._eval: float | None = None
        self._own: dict[str, float] = {}

    def __call__(self, ctx: Context) -> Generator[None, None, None]:
        """Note new values, and show them when it is time."""
        if self._first_step is None:
            self._first_step = ctx.get("env_step", 0)
            self._started = time.monotonic()
        try:
            yield
        except GeneratorExit:
            # The run failed, and its error message has to begin on a new line.
            if self._in_place and not self._quiet:
                self._write(lambda: "\n")
            raise
        self._return = ctx.get("metrics", {}).get("collect/return_100", self._return)
        self._eval = ctx.get("eval_return", self._eval)
        self._own.update(ctx.get("own_metrics", {}))
        now = time.monotonic() - self._started
        if not self._quiet and (ctx.finish or now - self._shown_at >= self._every):
            self._shown_at = now
            self._show(ctx.env_step, now, ctx.finish)

    def _show(self, env_step: int, seconds: float, last: bool) -> None:
        text = self._text(env_step, seconds, last)
        if self._in_place:
            self._write(lambda: _NEW_LINE + self._bar(env_step, text) + ("\n" if last else ""))
        else:
            self._write(lambda: text + "\n")

    def _write(self, text: Callable[[], str]) -> None:
        """Write the text; if the terminal or pipe has been closed, write nothing from now on."""
        try:
            self._file.write(text())
            self._file.flush()
        except (OSError, ValueError):  # disconnected, full, or closed
            self._quiet = True

    def _text(self, env_step: int, seconds: float, last: bool) -> str:
        assert self._first_step is not None
        rate = (env_step - self._first_step) / seconds if seconds > 0 else 0.0
        parts = [f"{env_step:,}/{self._total:,} steps", f"{rate:,.0f}/s"]
        if self._return is not None:
            parts.append(f"return {self._return:.1f}")
        if self._eval is not None:
            parts.append(f"eval {self._eval:.1f}")
        for name, value in list(self._own.items())[:_MOST_OWN]:
            parts.append(f"{name.removeprefix('env/'):.20} {value:.3g}")
        if last:
            parts.append(f"in {clock(seconds)}")
        elif rate:
            parts.append(f"{clock(max(0, self._total - env_step) / rate)} left")
        return "  ".join(parts)

    def _bar(self, env_step: int, text: str) -> str:
        """Return the bar and the text, fitted to the terminal's current width."""
        width = self._console.width - 3  # room for the "^C" of the terminal, without a line break
        room = width - len(text) - 1
        grid = Table.grid(padding=(0, 1, 0, 0))
        shown = Text(text, no_wrap=True, overflow="crop")
        if room >= _LEAST_BAR:
            grid.add_row(ProgressBar(self._total, min(env_step, self._total), width=room), shown)
        else:
            grid.add_row(shown)
        with self._console.capture() as captured:
            self._console.print(grid, width=width, end="")
        return captured.get().rstrip("\n")


def name_of_terminal() -> str | None:
    """Return the terminal device of standard error, for a process with another standard error."""
    try:
        return os.ttyname(sys.stderr.fileno())
    except (AttributeError, OSError, ValueError):  # no stream, no file, or not a terminal
        return None


def opened(terminal: str | None) -> TextIO:
    """Open a terminal by its device; return this process's standard error if there is none."""
    try:
        return sys.stderr if terminal is None else open(terminal, "w", encoding="utf-8")
    except OSError:
        return sys.stderr


def clock(seconds: float) -> str:
    """Return a duration as text: 1:05, 2:00:00, 7 days."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    if hours >= 100:
        return f"{hours / 24:,.0f} days"
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"
