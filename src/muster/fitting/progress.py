"""Progress of `muster fit` on one line: epochs, samples/s, loss, test accuracy, time left."""

from collections.abc import Generator
from typing import TextIO

from muster.framework import Context
from muster.recipes.progress import Progress, clock


class FitProgress(Progress):
    """A middleware that shows progress: a bar on a terminal, otherwise a line now and then.

    Args:
        total: Number of samples of the whole run.
        epochs: Number of passes over the training set.
        quiet: Show nothing.
        file: Where to show it.
        has_accuracy: Whether tests give an accuracy; otherwise they give a loss.
    """

    def __init__(
        self, total: int, epochs: int, quiet: bool, file: TextIO, has_accuracy: bool = True
    ) -> None:
        super().__init__(total, quiet, file)
        self._epochs = epochs
        self._loss: float | None = None
        self._score: float | None = None
        self._has_accuracy = has_accuracy

    def __call__(self, ctx: Context) -> Generator[None, None, None]:
        """Record new values, and show them when due."""
        for _ in super().__call__(ctx):
            yield
            self._loss = ctx.get("train_loss", self._loss)
            self._score = ctx.get("test_score", self._score)

    def _text(self, env_step: int, seconds: float, last: bool) -> str:
        assert self._first_step is not None
        rate = (env_step - self._first_step) / seconds if seconds > 0 else 0.0
        done = env_step * self._epochs / self._total
        parts = [f"{done:.1f}/{self._epochs} epochs", f"{rate:,.0f} samples/s"]
        if self._loss is not None:
            parts.append(f"loss {self._loss:.3f}")
        if self._score is not None:
            accuracy, loss = f"{100 * self._score:.2f} %", f"loss {self._score:.4g}"
            parts.append(f"test {accuracy if self._has_accuracy else loss}")
        left = max(0, self._total - env_step) / rate if rate else 0.0
        parts.append(f"in {clock(seconds)}" if last else f"{clock(left)} left")
        return "  ".join(parts)
