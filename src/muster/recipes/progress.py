"""A line that says how training goes: steps, steps/s, return, time left."""

import sys
import time
from collections.abc import Generator
from typing import TextIO

from muster.framework import Context

_PLAIN_EVERY_S = 2.0


class Progress:
    """A middleware that shows progress: rewritten in place on a terminal, else a line now and then.

    Args:
        total: Environment steps that the run is to make.
        quiet: Show nothing.
        file: Where to show it; standard error by default.
    """

    def __init__(self, total: int, quiet: bool = False, file: TextIO | None = None) -> None:
        self._total = total
        self._quiet = quiet
        self._file = sys.stderr if file is None else file
        self._in_place = self._file.isatty()
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
        yield
        self._return = ctx.get("metrics", {}).get("collect/return", self._return)
        if "evaluation" in ctx:
            self._eval = ctx.evaluation.mean
        now = time.monotonic() - self._started
        every = 0.2 if self._in_place else _PLAIN_EVERY_S
        if not self._quiet and (ctx.finish or now - self._shown_at >= every):
            self._shown_at = now
            self._show(ctx.env_step, now, ctx.finish)

    def _show(self, env_step: int, seconds: float, last: bool) -> None:
        assert self._first_step is not None
        rate = (env_step - self._first_step) / seconds if seconds > 0 else 0.0
        parts = [f"{env_step:,} of {self._total:,} steps", f"{rate:,.0f} steps/s"]
        if self._return is not None:
            parts.append(f"return {self._return:.1f}")
        if self._eval is not None:
            parts.append(f"evaluated {self._eval:.1f}")
        if rate and not last:
            parts.append(f"{max(0, self._total - env_step) / rate:.0f} s left")
        line = "  ".join(parts)
        if self._in_place:
            self._file.write(f"\r\x1b[K{line[:79]}" + ("\n" if last else ""))
        else:
            self._file.write(line + "\n")
        self._file.flush()
