"""How training goes: a bar with steps, steps/s, returns and the time left, or a line now and then.

The bar is one line that is written again, at most five times a second, by the thread that trains.
It leaves the terminal as it is (no hidden cursor, no thread, no redirected output), so there is
nothing to restore however a run ends.
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
_NEW_LINE = "\r\x1b[K"


class Progress:
    """A middleware that shows progress: a bar on a terminal, else a line now and then.

    Args:
        total: Environment steps that the run is to make.
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

    def __call__(self, ctx: Context) -> Generator[None, None, None]:
        """Note what is new, and show it when it is time."""
        if self._first_step is None:
            self._first_step = ctx.get("env_step", 0)
            self._started = time.monotonic()
        try:
            yield
        except GeneratorExit:
            # The run failed, and what is said about it begins on a line of its own.
            if self._in_place and not self._quiet:
                self._write(lambda: "\n")
            raise
        self._return = ctx.get("metrics", {}).get("collect/return_100", self._return)
        self._eval = ctx.get("eval_return", self._eval)
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
        """Show something, for as long as anybody looks: a terminal or a pipe may be gone."""
        try:
            self._file.write(text())
            self._file.flush()
        except (OSError, ValueError):  # gone, full, or closed
            self._quiet = True

    def _text(self, env_step: int, seconds: float, last: bool) -> str:
        assert self._first_step is not None
        rate = (env_step - self._first_step) / seconds if seconds > 0 else 0.0
        parts = [f"{env_step:,}/{self._total:,} steps", f"{rate:,.0f}/s"]
        if self._return is not None:
            parts.append(f"return {self._return:.1f}")
        if self._eval is not None:
            parts.append(f"eval {self._eval:.1f}")
        if last:
            parts.append(f"in {clock(seconds)}")
        elif rate:
            parts.append(f"{clock(max(0, self._total - env_step) / rate)} left")
        return "  ".join(parts)

    def _bar(self, env_step: int, text: str) -> str:
        """Return the bar and the text in the terminal's width as it is now."""
        width = self._console.width - 3  # for the "^C" of the terminal, and no new line after it
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
    """Return the device that standard error is, for a process that has another one."""
    try:
        return os.ttyname(sys.stderr.fileno())
    except (AttributeError, OSError, ValueError):  # no stream at all, no file, or no terminal
        return None


def opened(terminal: str | None) -> TextIO:
    """Return a terminal by its device; this process's standard error if there is none."""
    try:
        return sys.stderr if terminal is None else open(terminal, "w", encoding="utf-8")
    except OSError:
        return sys.stderr


def clock(seconds: float) -> str:
    """Return a time as it is shown: 1:05, 2:00:00, 7 days."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    if hours >= 100:
        return f"{hours / 24:,.0f} days"
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"
