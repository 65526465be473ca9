"""`Learner`: updates the policy's weights, and counts the updates."""

import time
from collections.abc import Callable
from typing import Any, Protocol

from muster.errors import TaskError


class LearningPolicy(Protocol):
    """The policy that a learner trains."""

    train_iter: int

    def update(self, batch: Any) -> dict[str, float]:
        """Take one gradient step and return its metrics."""

    def update_many(self, batches: Any) -> dict[str, float]:
        """Take one gradient step for each of K batches and return the means."""

    def get_attribute(self, name: str) -> Any:
        """Return a setting by its name."""


class Learner:
    """Trains a policy on batches.

    Args:
        policy: The policy to train.
        save: Called by `save_checkpoint`.
        announce: Called with the data before each update, so that replicas can take the same step.
    """

    def __init__(
        self,
        policy: LearningPolicy,
        save: Callable[[], object] | None = None,
        announce: Callable[[Any], None] | None = None,
    ) -> None:
        self.policy = policy
        self.learn_seconds = 0.0
        """Seconds spent on gradients and updates."""
        self._save = save
        self._announce = announce

    @property
    def train_iter(self) -> int:
        """Updates so far."""
        return self.policy.train_iter

    def train(self, data: Any, envstep: int = 0) -> dict[str, float]:
        """Take one gradient step, or K of them for K batches at once, and return the metrics.

        Args:
            data: A batch [B, ...], or K of them [K, B, ...].
            envstep: Environment steps so far; nothing here depends on it.
        """
        started = time.perf_counter()
        if self._announce is not None:
            self._announce(data)
        # Decide by the weights: a sequence has a reward for each of its steps, but one weight.
        update = self.policy.update if data.weight.ndim == 1 else self.policy.update_many
        metrics = update(data)
        self.learn_seconds += time.perf_counter() - started
        return metrics

    def save_checkpoint(self) -> None:
        """Save the policy, with the function that the constructor received."""
        if self._save is None:
            raise TaskError(
                "this learner does not know how to save",
                "it was made without save=",
                "Learner(policy, save=lambda: store.save(...))",
            )
        self._save()
