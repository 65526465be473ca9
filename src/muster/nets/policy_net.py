"""What agents in step ask of a network, whatever computes it: act, value, gradient.

module (torch) ──> FusedPolicy  small MLPs, one compiled call
               └─> TorchPolicy  everything else, by autograd

A module maps observations [B, ...] to (outputs [B, K], value [B]); `ActionHead` says what the K
outputs mean, and an `Objective` what is done with them. Both ways work on the module's one flat
vector of parameters.
"""

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Floats = NDArray[np.float32]


class Rollout(NamedTuple):
    """What was experienced, with T steps of N environments as T * N rows (row = t * N + env)."""

    obs: Any
    """[T * N, ...], or a dict of such."""
    action: Array
    """[T * N, width]: int64 categories, or float32 as drawn, before clipping to a Box."""
    logp: Floats
    """[T * N], of the action when it was drawn."""
    value: Floats
    """[T * N], of the network that acted."""
    advantage: Floats
    """[T * N], normalised already where that is wanted."""
    target: Floats
    """[T * N], what the value should have been."""
    state: Array | None = None
    """Of a network with a memory: [T // length, N, state_width], before each chunk's first step."""
    first: Array | None = None
    """Of a network with a memory: bool [T * N], where an episode begins."""


class LossTerms(NamedTuple):
    """The numbers of PPO's loss."""

    scale: float
    """What one row counts: 1 / rows of the whole minibatch, of all slots."""
    clip: float
    """How far the ratio may leave 1."""
    value_clip: float
    """How far the value may leave the old one; 0 for as far as it likes."""
    value_coef: float
    entropy_coef: float


STATS = ("policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction")
"""What `gradient` adds up, each as a sum over its rows times `scale`."""


class Objective(Protocol):
    """What an algorithm makes of a network's outputs: actions now, a loss later."""

    def draw(self, outputs: Floats, noise: Floats, action: Array, logp: Floats) -> None:
        """Write an action [n, width] for each row of outputs [n, K], and its log-probability [n].

        Args:
            outputs: Of the network.
            noise: [n, width], as the agent's `noise` made it.
            action: Is written.
            logp: Is written; 0 where actions have no probability.
        """

    def loss(
        self,
        outputs: Floats,
        value: Floats,
        rollout: Rollout,
        rows: NDArray[np.int64],
        terms: Any,
        d_outputs: Floats,
        d_value: Floats,
        stats: NDArray[np.float64],
    ) -> int:
        """Write the derivative of the loss of m rows by outputs [m, K] and value [m].

        Args:
            outputs: Of the network that learns.
            value: Of the same.
            rollout: All rows.
            rows: Which m of them.
            terms: The numbers of the loss, as the agent's `terms` made them.
            d_outputs: [m, K], output.
            d_value: [m], output.
            stats: One number for each of the agent's `stats`, is added to.

        Returns:
            -1, or the first of the m rows that does not exist, or whose action does not.
        """


class PolicyNet(Protocol):
    """A network that acts and can be learnt."""

    row_exact: bool
    """Whether the bits of a row do not depend on which rows are computed with it."""

    def act(self, obs: Any, noise: Floats, action: Array, logp: Floats, value: Floats) -> None:
        """Draw an action for each of n observations.

        Args:
            obs: [n, ...], or a dict of such.
            noise: [n, width]: uniform in [0, 1) for categories, standard normal for a Gaussian.
            action: [n, width], output.
            logp: [n], output.
            value: [n], output.
        """

    def best(self, obs: Any) -> Array:
        """Return the most likely action for each observation, [n, width]."""

    def values(self, obs: Any, value: Floats) -> None:
        """Write the value of each of n observations."""

    def evaluate_actions(self, obs: Any, action: Array, logp: Floats, value: Floats) -> None:
        """Write the log-probability of given actions and the value of each of n observations.

        Args:
            obs: [n, ...], or a dict of such.
            action: [n, width], as `act` wrote it.
            logp: [n], output.
            value: [n], output.
        """

    def gradient(
        self,
        rollout: Rollout,
        rows: NDArray[np.int64],
        terms: Any,
        grad: Floats,
        stats: NDArray[np.float64],
    ) -> None:
        """Write the gradient of the loss over some rows, and what it was made of.

        Args:
            rollout: All rows.
            rows: Which of them.
            terms: The coefficients of the loss.
            grad: As long as the flat vector; overwritten.
            stats: One sum for each of the objective's metrics, overwritten.
        """
