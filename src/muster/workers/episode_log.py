"""`EpisodeLog`: counts every training episode in exactly one line of metrics.

    loop:  add(episodes that ended in it)      line is due:  take() -> their number, means
    any time:  window()  mean return of the last 100

The state is one small vector. It fits into a checkpoint, and into memory that outlives a worker
that is killed between two lines.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

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

    @classmethod
    def of(cls, episodes: Sequence[tuple[float, float]]) -> "EndedEpisodes":
        """Return the summary of episodes given as (return, length)."""
        returns = [each[0] for each in episodes]
        return cls(returns, len(returns), sum(returns), sum(each[1] for each in episodes))

    @classmethod
    def joined(cls, parts: "Sequence[EndedEpisodes]") -> "EndedEpisodes":
        """Return the episodes of several parts, in their order."""
        return cls(
            [each for part in parts for each in part.returns],
            sum(part.count for part in parts),
            sum(part.return_sum for part in parts),
            sum(part.length_sum for part in parts),
        )


class EpisodeLog:
    """Counts the episodes of one run."""

    def __init__(self) -> None:
        self.state: NDArray[np.float64] = np.zeros(SIZE)
        """The complete state."""

    def add(self, ended: EndedEpisodes) -> None:
        """Count the episodes of a loop."""
        state = self.state
        state[_COUNT] += ended.count
        state[_RETURNS] += ended.return_sum
        state[_LENGTHS] += ended.length_sum
        for value in ended.returns:
            state[_FIRST + int(state[_SEEN]) % WINDOW] = value
            state[_SEEN] += 1

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

    def state_dict(self) -> dict[str, Any]:
        """Return the complete state, for a checkpoint."""
        return {"state": self.state.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state that `state_dict` returned."""
        self.state[:] = state["state"]
