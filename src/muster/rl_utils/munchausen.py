"""Munchausen targets (Vieillard et al. 2020): soft Q-learning with a share of log pi as reward.

pi = softmax(q / tau)
target = r + alpha tau [log pi(a|s)] + gamma sum_a' pi(a'|s') (q(s', a') - tau log pi(a'|s'))
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]

LOWEST = -1.0
"""Lower limit of tau log pi: a nearly impossible action would outweigh any reward."""


def munchausen_terms(
    q: Floats, action: NDArray[np.int64], next_q: Floats, alpha: float, tau: float
) -> tuple[Floats, Floats]:
    """Return the addition to the reward, [B], and the soft value of the next state, [B, M].

    Args:
        q: [B, actions], of the target network, for the current observation.
        action: [B], the actions taken.
        next_q: [B, actions, M], of the target network, M numbers (quantiles, or 1) for each action.
        alpha: Share of tau log pi that is added to the reward.
        tau: Temperature of the policy.
    """
    earned = _tau_log_pi(q, tau)[np.arange(len(action)), action]
    tau_log_pi = _tau_log_pi(next_q.mean(axis=2), tau)
    pi = np.exp(tau_log_pi / tau)
    follows = (pi[..., None] * (next_q - tau_log_pi[..., None])).sum(axis=1)
    return alpha * np.clip(earned, LOWEST, 0.0), follows


def _tau_log_pi(q: Floats, tau: float) -> Floats:
    """Return tau log softmax(q / tau), [B, actions], float64."""
    above = np.asarray(q, np.float64) - q.max(axis=1, keepdims=True)
    found: Floats = above - tau * np.log(np.exp(above / tau).sum(axis=1, keepdims=True))
    return found
