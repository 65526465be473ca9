"""n-step returns and the targets of Q-learning.

    rewards and ends of T steps -> n_step -> reward sum, discount, steps taken
    reward sum, discount, Q of the next observation -> td_targets -> targets of Q

Ends come in two kinds. After a *terminated* episode no reward is possible, so nothing is added for
the next observation. A *truncated* episode was cut off: the sum stops there, but the value of its
true final observation counts.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from muster.errors import OptionError

Floats = NDArray[np.floating[Any]]


def td_targets(
    reward: Floats, discount: Floats, next_q: Floats, choose_by: Floats | None = None
) -> Floats:
    """Return reward + discount * next_q[best], the target of Q-learning, [B].

    Args:
        reward: [B], the sum over the steps taken.
        discount: [B], gamma^k after k steps; 0 where the episode terminated.
        next_q: [B, actions], the target network's values of the observation after these steps.
        choose_by: [B, actions], the values that choose the action. None: `next_q` itself (Mnih et
            al. 2015). The online network's values: double DQN (van Hasselt et al. 2016, eq. 4).
    """
    best = (next_q if choose_by is None else choose_by).argmax(axis=1)
    targets: Floats = reward + discount * next_q[np.arange(len(best)), best]
    return targets


def n_step_targets(
    reward: Floats,
    terminated: NDArray[np.bool_],
    truncated: NDArray[np.bool_],
    after: Floats,
    gamma: float,
    n: int,
) -> Floats:
    """Return the rewards of up to `n` steps plus the value of the state after them, [T, N].

    Args:
        reward: [T, N], of consecutive steps of N environments.
        terminated: bool [T, N], whether the episode ended with this step: no value is added.
        truncated: bool [T, N], whether the episode was truncated: its final value is added.
        after: [T, N], the value of the state after each step, in the same episode.
        gamma: Discount per step.
        n: Maximum number of steps to sum. A sum stops at the end of its episode, and at T.
    """
    one = reward + gamma * np.where(terminated, 0, after)
    last = terminated | truncated
    last[-1] = True
    found = one
    for _ in range(n - 1):
        found = np.where(last, one, reward + gamma * np.roll(found, -1, axis=0))
    return found


def n_step(
    reward: Floats,
    terminated: NDArray[np.bool_],
    truncated: NDArray[np.bool_],
    gamma: float,
    n: int,
) -> tuple[Floats, Floats, NDArray[np.int64]]:
    """Return the discounted reward sum over up to `n` steps from each step, and its discount.

    Args:
        reward: [T], of consecutive steps of one environment, over one or more episodes.
        terminated: bool [T], whether the episode ended with this step.
        truncated: bool [T], whether the episode was truncated after this step.
        gamma: Discount per step.
        n: Maximum number of steps to sum. A sum stops at the end of its episode, and at T.

    Returns:
        The sums [T]; the discounts [T] of the next value, gamma^k or 0 where the sum ends in a
        terminated step; and k [T], the number of steps in each sum.
    """
    if n < 1:
        raise OptionError(
            f"n={n!r} is not possible", "it must be a number of steps, 1 or more", "n=3"
        )
    total = np.zeros_like(reward)
    discount = np.ones_like(reward)
    steps = np.zeros(len(reward), np.int64)
    going = np.ones(len(reward), np.bool_)
    at = np.arange(len(reward))
    for k in range(n):
        total[going] += gamma**k * reward[at[going]]
        steps[going] += 1
        discount[going] = np.where(terminated[at[going]], 0, gamma ** (k + 1))
        going &= ~(terminated[at] | truncated[at])
        going &= at + 1 < len(reward)
        at = np.where(going, at + 1, at)
    return total, discount, steps
