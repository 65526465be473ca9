"""V-trace (Espeholt et al. 2018, section 4.1): off-policy targets of values, and advantages.

    ratio_t = pi(a_t | x_t) / mu(a_t | x_t);  rho_t = min(rho_bar, ratio_t)
    c_t = lambda min(c_bar, ratio_t);  delta_t = rho_t (r_t + gamma next_t - V_t)
    v_t = V_t + delta_t + gamma c_t (v_{t+1} - V_{t+1})              target of the value
    advantage_t = rho_t (r_t + gamma v_{t+1} - V_t)                  of the policy gradient

next_t and v_{t+1} are 0 after a terminated step, the value of the true final observation after a
truncated one, and at the edge of an unroll the value of the next state. The sums stop there.
"""

import math

import numpy as np
from numpy.typing import NDArray

from muster.jit import jit

Floats = NDArray[np.float32]
Bools = NDArray[np.bool_]


def vtrace_numpy(
    reward: Floats,
    value: Floats,
    terminated: Bools,
    truncated: Bools,
    final_value: Floats,
    log_ratio: Floats,
    gamma: float,
    lam: float,
    rho_bar: float,
    c_bar: float,
    weigh: bool,
    target: Floats,
    advantage: Floats,
) -> None:
    """NumPy equivalent of `vtrace`."""
    discount, decay = np.float32(gamma), np.float32(gamma * lam)
    with np.errstate(over="ignore"):
        ratio = np.exp(log_ratio.astype(np.float64)).astype(np.float32)
    rho, c = np.minimum(np.float32(rho_bar), ratio), np.minimum(np.float32(c_bar), ratio)
    ended = terminated | truncated
    carried = np.zeros(reward.shape[1], np.float32)
    ahead = value[-1]
    for t in range(len(reward) - 1, -1, -1):
        cut = np.where(terminated[t], np.float32(0), final_value[t])
        carried[ended[t]] = 0
        following = np.where(ended[t], cut, value[t + 1])
        corrected = np.where(ended[t], cut, ahead)
        delta = rho[t] * ((reward[t] + discount * following) - value[t])
        carried = delta + decay * c[t] * carried
        gain = (reward[t] + discount * corrected) - value[t]
        advantage[t] = rho[t] * gain if weigh else gain
        ahead = target[t] = value[t] + carried


@jit(vtrace_numpy)
def vtrace(
    reward: Floats,
    value: Floats,
    terminated: Bools,
    truncated: Bools,
    final_value: Floats,
    log_ratio: Floats,
    gamma: float,
    lam: float,
    rho_bar: float,
    c_bar: float,
    weigh: bool,
    target: Floats,
    advantage: Floats,
) -> None:
    """Write targets of the values and advantages of T steps of N environments.

    Args:
        reward: [T, N].
        value: [T + 1, N], by the policy that learns, of the observations before each step, and
            after the last one.
        terminated: bool [T, N], whether the episode ended with this step.
        truncated: bool [T, N], whether the episode was truncated after this step.
        final_value: [T, N], the value of the true final observation; read only where truncated.
        log_ratio: [T, N], log-probability of the action under the policy that learns, minus that
            under the policy that acted.
        gamma: Discount per step.
        lam: 1 as in the paper; less trusts the values more.
        rho_bar: Limit of rho; determines which policy's value is learnt.
        c_bar: Limit of c; determines the speed of convergence.
        weigh: Whether advantages are multiplied by rho; False if the loss does so itself.
        target: [T, N], output.
        advantage: [T, N], output.
    """
    zero, discount, decay = np.float32(0), np.float32(gamma), np.float32(gamma * lam)
    most_rho, most_c = np.float32(rho_bar), np.float32(c_bar)
    steps = reward.shape[0]
    for t in range(steps - 1, -1, -1):
        for i in range(reward.shape[1]):
            following = value[t + 1, i]
            corrected = following
            carried = zero
            if t + 1 < steps:
                corrected = target[t + 1, i]
                carried = corrected - following
            if truncated[t, i]:
                following = corrected = final_value[t, i]
                carried = zero
            if terminated[t, i]:
                following = corrected = carried = zero
            ratio = np.float32(math.exp(np.float64(log_ratio[t, i])))
            rho = most_rho if ratio > most_rho else ratio  # propagates NaN
            c = most_c if ratio > most_c else ratio
            delta = rho * ((reward[t, i] + discount * following) - value[t, i])
            gain = (reward[t, i] + discount * corrected) - value[t, i]
            target[t, i] = value[t, i] + (delta + decay * c * carried)
            advantage[t, i] = rho * gain if weigh else gain
