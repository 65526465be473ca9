"""`BestCheckpoint`: the weights of the best evaluation so far, with their score.

It has its own directory, `checkpoints/best/`: no regular checkpoint replaces it, and `last` never
points at it. The score is in the checkpoint itself, so weights and score are read together or not
at all.
"""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import SupportsIndex

from muster.errors import OptionError
from muster.run.checkpoint import CheckpointStore
from muster.run.errors import CheckpointError
from muster.run.reading import Checkpoint
from muster.run.tree import Tree

FOLDER = "best"
_SCORE = "score"


class BestCheckpoint:
    """The best checkpoint of one run.

    Args:
        checkpoints: The directory of the run's checkpoints.
        check_writable: Called before each write; raises if this process may not write.
    """

    def __init__(
        self, checkpoints: Path, *, check_writable: Callable[[], None] = lambda: None
    ) -> None:
        self._store = CheckpointStore(checkpoints / FOLDER, check_writable=check_writable)

    def save(
        self,
        step: SupportsIndex,
        parts: Mapping[str, Tree],
        counters: Tree,
        meta: Tree,
        score: float,
    ) -> Path:
        """Save these weights in place of the best ones so far, and return their directory.

        Args:
            step: The env_step of these weights, not that of the end of the evaluation.
            parts: The evaluated state; as for `CheckpointStore.save`.
            counters: The counters of the same step.
            meta: As for `CheckpointStore.save`.
            score: Mean return of the evaluation of exactly these weights.
        """
        score = float(score)
        if not math.isfinite(score):
            raise OptionError(
                f"the score of the best checkpoint is {score}",
                "no score can be better or worse than that",
                "a finite score, such as the mean return of an evaluation",
            )
        path = self._store.save(step, parts, counters, {**meta, _SCORE: score})
        self._store.prune(keep=1)
        return path

    def path(self) -> Path | None:
        """Return the directory of the checkpoint; None if nothing was evaluated yet."""
        return self._store.last()

    def load(self) -> Checkpoint | None:
        """Load the checkpoint; None if nothing was evaluated yet."""
        path = self.path()
        return None if path is None else self._store.load(path)

    def score(self) -> float | None:
        """Return the score of the saved weights; None if nothing was evaluated yet."""
        best = self.load()
        if best is None:
            return None
        score = best.meta.get(_SCORE)
        if not isinstance(score, float):
            raise CheckpointError(
                f"{best.path} has no score",
                "muster did not write it as the best checkpoint",
                f"rm -r {best.path}",
            )
        return score
