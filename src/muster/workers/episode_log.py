"""`EpisodeLog`: counts every training episode in exactly one line of metrics.

    loop:  add(episodes that ended in it)      line is due:  take() -> their number, means
    any time:  window()  mean return of the last 100       take_metrics() -> means of the env's own

The state is one small vector. It fits into a checkpoint, and into memory that outlives a worker
that is killed between two lines. The environment's own metrics are no part of it: a line is written
before every checkpoint, and `metric_table.py` keeps them for a killed worker.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from muster.envs.step_metrics import MetricSums, added
from muster.flow import register_dataclass

WINDOW = 100
"""Episodes in the mean return of each line."""

_COUNT, _RETURNS, _LENGTHS, _SEEN, _FIRST = range(5)
"""Layout of the state: number, sum of returns and sum of lengths since the last line; how many
episodes the window has ever seen; where the window begins."""
SIZE = _FIRST + WINDOW


@register_dataclass
@dataclass(frozen=True, slots=True)
class EndedEpisodes:
    """Episodes that ended in one loop."""

    returns: Sequence[float]
    """Their last returns, at most `WINDOW` of each part that was collected separately."""
    count: int
    """Number of episodes."""
    return_sum: float
    length_sum: float
    metrics: Mapping[str, tuple[float, int]] = field(default_factory=dict)
    """The environment's own metrics in this loop, also of episodes that have not ended: for each
    name the sum and the count of its numbers."""

    @classmethod
    def of(
        cls,
        episodes: Sequence[tuple[float, float]],
        metrics: Mapping[str, tuple[float, int]] | None = None,
    ) -> "EndedEpisodes":
        """Return the summary of episodes given as (return, length), with the env's own metrics."""
        returns = [each[0] for each in episodes]
        lengths = sum(each[1] for each in episodes)
        return cls(returns, len(returns), sum(returns), lengths, metrics or {})

    @classmethod
    def joined(cls, parts: "Sequence[EndedEpisodes]") -> "EndedEpisodes":
        """Return the episodes of several parts, in their order."""
        return cls(
            [each for part in parts for each in part.returns],
            sum(part.count for part in parts),
            sum(part.return_sum for part in parts),
            sum(part.length_sum for part in parts),
            added(part.metrics for part in parts if part.metrics),
        )


class EpisodeLog:
    """Counts the episodes of one run."""

    def __init__(self) -> None:
        self.state: NDArray[np.float64] = np.zeros(SIZE)
        """The complete state."""
        self.metrics: MetricSums = {}
        """The environment's own metrics since the last line."""

    def add(self, ended: EndedEpisodes) -> None:
        """Count the episodes of a loop."""
        state = self.state
        state[_COUNT] += ended.count
        state[_RETURNS] += ended.return_sum
        state[_LENGTHS] += ended.length_sum
        for value in ended.returns:
            state[_FIRST + int(state[_SEEN]) % WINDOW] = value
            state[_SEEN] += 1
        if ended.metrics:
            self.metrics = added((self.metrics, ended.metrics))

    def window(self) -> dict[str, float]:
        """Return the mean return of the last 100 episodes; empty before the first one has ended."""
        known = min(int(self.state[_SEEN]), WINDOW)
        if not known:
            return {}
        return {"collect/return_100": float(self.state[_FIRST : _FIRST + known].mean())}

    def take(self) -> dict[str, float]:
        """Return the means of the episodes since the last line, and reset these counts."""
        count, returns, lengths = self.state[:_SEEN].tolist()
        self.state[:_SEEN] = 0.0
        if not count:
            return {}
        return {
            "collect/episodes": count,
            "collect/return": returns / count,
            "collect/length": lengths / count,
        }

    def take_metrics(self) -> dict[str, float]:
        """Return the means of the environment's own metrics since the last line, as `env/NAME`."""
        if not self.metrics:
            return {}
        sums, self.metrics = self.metrics, {}
        return {f"env/{name}": amount / count for name, (amount, count) in sums.items()}

    def state_dict(self) -> dict[str, Any]:
        """Return the complete state, for a checkpoint."""
        return {"state": self.state.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state that `state_dict` returned."""
        self.state[:] = state["state"]
