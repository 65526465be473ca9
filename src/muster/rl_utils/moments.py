"""Means and standard deviations of numbers in several places, summed in a fixed order."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from muster.jit import jit

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Moments:
    """Count, mean and sum of squared deviations, of one or several columns of numbers."""

    count: float
    mean: Doubles
    m2: Doubles

    @classmethod
    def of(cls, rows: NDArray[np.floating]) -> "Moments":
        """Return the moments of the columns of rows [count, ...], computed in float64."""
        wide = rows.astype(np.float64)
        mean = wide.mean(axis=0)
        wide -= mean
        wide *= wide
        return cls(float(len(rows)), np.asarray(mean), np.asarray(wide.sum(axis=0)))

    def merged(self, other: "Moments") -> "Moments":
        """Return the moments of both sets together (Chan et al. 1979, eq. 2.1)."""
        total = self.count + other.count
        delta = other.mean - self.mean
        mean = self.mean + delta * (other.count / total)
        m2 = self.m2 + other.m2 + delta * delta * (self.count * other.count / total)
        return Moments(total, mean, m2)

    @property
    def std(self) -> Doubles:
        """The standard deviation (of the population)."""
        return np.sqrt(self.m2 / self.count)


NOTHING = Moments(0.0, np.zeros(()), np.zeros(()))
"""The moments of an empty set."""


def running_returns_numpy(
    reward: Floats,
    terminated: NDArray[np.bool_],
    truncated: NDArray[np.bool_],
    gamma: float,
    carried: Doubles,
    returns: Doubles,
    first: int,
) -> None:
    """NumPy equivalent of `running_returns`."""
    mine = slice(first, first + len(carried))
    for t in range(len(reward)):
        carried *= gamma
        carried += reward[t, mine]
        returns[t] = carried
        carried[terminated[t, mine] | truncated[t, mine]] = 0


@jit(running_returns_numpy)
def running_returns(
    reward: Floats,
    terminated: NDArray[np.bool_],
    truncated: NDArray[np.bool_],
    gamma: float,
    carried: Doubles,
    returns: Doubles,
    first: int,
) -> None:
    """Write the discounted reward sums so far in each episode; their std scales rewards.

    Args:
        reward: [T, N].
        terminated: bool [T, N].
        truncated: bool [T, N].
        gamma: Discount per step.
        carried: [n], the sums before the first step, of columns first .. first + n - 1; updated to
            the sums after the last step.
        returns: [T, n], output.
        first: The first column to compute.
    """
    for t in range(reward.shape[0]):
        for i in range(carried.size):
            total = carried[i] * gamma + reward[t, first + i]
            returns[t, i] = total
            if terminated[t, first + i] or truncated[t, first + i]:
                total = 0.0
            carried[i] = total
