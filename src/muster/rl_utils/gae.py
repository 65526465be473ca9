"""Generalised advantage estimation (Schulman et al. 2016, eq. 16).

delta_t = r_t + gamma * next_t - v_t;  advantage_t = delta_t + gamma * lambda * advantage_{t+1}

next_t is 0 after a terminated step, the value of the true final observation after a truncated one,
and v_{t+1} otherwise. The sum stops at both kinds of ends.
"""

import numpy as np
from numpy.typing import NDArray

from muster.jit import jit

Floats = NDArray[np.float32]
Bools = NDArray[np.bool_]


def gae_numpy(
    reward: Floats,
    value: Floats,
    terminated: Bools,
    truncated: Bools,
    final_value: Floats,
    gamma: float,
    lam: float,
    advantage: Floats,
    first: int,
    last: int,
) -> None:
    """NumPy equivalent of `gae`."""
    discount, decay = np.float32(gamma), np.float32(gamma * lam)
    mine = slice(first, last)
    carried = np.zeros(last - first, np.float32)
    for t in range(len(reward) - 1, -1, -1):
        following = np.where(truncated[t, mine], final_value[t, mine], value[t + 1, mine])
        following[terminated[t, mine]] = 0
        carried[terminated[t, mine] | truncated[t, mine]] = 0
        delta = (reward[t, mine] + discount * following) - value[t, mine]
        carried = delta + decay * carried
        advantage[t, mine] = carried


@jit(gae_numpy)
def gae(
    reward: Floats,
    value: Floats,
    terminated: Bools,
    truncated: Bools,
    final_value: Floats,
    gamma: float,
    lam: float,
    advantage: Floats,
    first: int,
    last: int,
) -> None:
    """Write the advantages of T steps of the environments first..last - 1.

    Takes whole C-contiguous arrays and two column numbers, not slices of columns: numba would
    compile again for arrays with gaps.

    Args:
        reward: [T, N].
        value: [T + 1, N], of the observations before each step, and after the last one.
        terminated: bool [T, N], whether the episode ended with this step.
        truncated: bool [T, N], whether the episode was truncated after this step.
        final_value: [T, N], the value of the true final observation; read only where truncated.
        gamma: Discount per step.
        lam: 0 trusts only the value estimates, 1 only the rewards.
        advantage: [T, N], output.
        first: The first column to compute.
        last: The column after the last one to compute.
    """
    zero, discount, decay = np.float32(0), np.float32(gamma), np.float32(gamma * lam)
    steps = reward.shape[0]
    for t in range(steps - 1, -1, -1):
        for i in range(first, last):
            following = value[t + 1, i]
            carried = zero
            if t + 1 < steps:
                carried = advantage[t + 1, i]
            if truncated[t, i]:
                following = final_value[t, i]
                carried = zero
            if terminated[t, i]:
                following = zero
                carried = zero
            delta = (reward[t, i] + discount * following) - value[t, i]
            advantage[t, i] = delta + decay * carried
