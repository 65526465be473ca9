"""`VersionLedger`: numbers the versions of weights, and accepts each gradient exactly once.

    next()                               a version, higher than all before it
    accept(learner, incarnation, n, v)   True: use these gradients; False: already used
    may_apply(learner)                   whether all others can still be applied within max_lag
    applied(learner)                     its gradients were used: count their lag

The ledger only decides and counts: it never waits, and knows no weights. Two classes use it: the
`ParameterServer` of this package (boards and channels between nodes) and that of `muster.actors`.
"""

from dataclasses import dataclass
from typing import Any

from muster.errors import OptionError, TaskError


@dataclass(slots=True)
class LagCount:
    """Statistics of lags: the versions between the weights used and the weights updated."""

    count: int = 0
    least: int = 0
    total: float = 0.0
    most: int = 0

    def add(self, least: int, mean: float, most: int) -> None:
        """Count one more: a single lag, or the minimum, mean and maximum of a batch."""
        self.least = min(self.least, least) if self.count else least
        self.most = max(self.most, most) if self.count else most
        self.total += mean
        self.count += 1

    @property
    def mean(self) -> float:
        """The mean of all counted lags."""
        return self.total / max(self.count, 1)


@dataclass(slots=True)
class _Life:
    """The newest incarnation of a learner."""

    incarnation: int
    sequence: int = 0
    """The number of its last gradients."""
    holds: int | None = None
    """The version for which it computes gradients; None if no one waits for it."""
    applied: int = 0
    """Number of applied gradients of this learner, over all incarnations."""


class VersionLedger:
    """Versions of one set of weights.

    Args:
        version: The version before the first.
        max_lag: Maximum number of versions between the weights of a gradient and those it updates.
    """

    def __init__(self, version: int = 0, max_lag: int | None = None) -> None:
        self.version = version
        self.lags = LagCount()
        """The lags of gradients."""
        self._max_lag = max_lag
        self._repeated = 0
        self._lives: dict[int, _Life] = {}

    def next(self) -> int:
        """Make a new version."""
        self.version += 1
        return self.version

    def join(self, learner: int, incarnation: int) -> int:
        """Record that a learner begins, and return the version with which it begins."""
        self._life(learner, incarnation).holds = self.version
        learners = sum(life.holds is not None for life in self._lives.values())
        if self._max_lag is not None and self._max_lag < learners - 1:
            raise OptionError(
                f"max_lag={self._max_lag} is not possible with {learners} learners",
                "while one computes a gradient, each of the others may be applied",
                f"max_lag={learners - 1}",
            )
        return self.version

    def leave(self, learner: int, incarnation: int) -> None:
        """Stop waiting for this learner."""
        life = self._lives.get(learner)
        if life is not None and life.incarnation == incarnation:
            life.holds = None

    def accept(self, learner: int, incarnation: int, sequence: int, version: int) -> bool:
        """Whether these gradients are new; False if they were already used.

        Args:
            learner: The learner that computed them.
            incarnation: Its incarnation.
            sequence: Their number in that incarnation, from 1 and without gaps.
            version: The version of the weights for which they were computed.

        Raises:
            TaskError: A later incarnation has begun, or gradients in between are missing.
        """
        life = self._life(learner, incarnation)
        if sequence <= life.sequence:
            self._repeated += 1
            return False
        if sequence != life.sequence + 1:
            raise TaskError(
                f"gradients {sequence} of learner {learner} arrived after {life.sequence}",
                "the gradients in between were lost, or numbered wrongly",
                f"sequence={life.sequence + 1}",
            )
        life.sequence, life.holds = sequence, version
        return True

    def may_apply(self, learner: int) -> bool:
        """Whether all others can still be applied within `max_lag` after this one, oldest first."""
        if self._max_lag is None:
            return True
        lives = self._lives.items()
        held = sorted(
            each.holds for who, each in lives if who != learner and each.holds is not None
        )
        return all(self.version + 1 + i - each <= self._max_lag for i, each in enumerate(held))

    def applied(self, learner: int) -> int:
        """Record that a learner's accepted gradients were used; return the version they made."""
        life = self._lives[learner]
        lag = self.version - (self.version if life.holds is None else life.holds)
        self.lags.add(lag, lag, lag)
        life.applied += 1
        life.holds = self.next()
        return self.version

    def counts(self) -> dict[str, Any]:
        """Return the statistics so far.

        `version`; `gradients`, those applied, and `repeated`, those rejected as duplicates;
        `applied`, the number per learner; `lag_min`, `lag_mean` and `lag_max` of the applied ones,
        in versions.
        """
        return {
            "version": self.version,
            "gradients": self.lags.count,
            "repeated": self._repeated,
            "applied": {who: each.applied for who, each in self._lives.items() if each.applied},
            "lag_min": self.lags.least,
            "lag_mean": self.lags.mean,
            "lag_max": self.lags.most,
        }

    def _life(self, learner: int, incarnation: int) -> _Life:
        life = self._lives.setdefault(learner, _Life(incarnation))
        if incarnation < life.incarnation:
            raise TaskError(
                f"learner {learner} was replaced",
                f"a later incarnation ({life.incarnation}) has begun since this ({incarnation})",
                "end this learner",
            )
        if incarnation > life.incarnation:
            life.incarnation, life.sequence = incarnation, 0
        return life
