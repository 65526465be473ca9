"""The interface of networks for agents in step, with any implementation: act, value, gradient.

module (torch) ─┬─> FusedPolicy  MLPs, one compiled call
                ├─> FusedImages  CNNs, compiled calls
                └─> TorchPolicy  everything else, by autograd

A module maps observations [B, ...] to (outputs [B, K], value [B]); `ActionHead` defines the meaning
of the K outputs, and an `Objective` their use. All implementations work on the module's one flat
parameter vector.
"""

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Floats = NDArray[np.float32]


class Rollout(NamedTuple):
    """Experience, with T steps of N environments as T * N rows (row = t * N + env)."""

    obs: Any
    """[T * N, ...], or a dict of such arrays."""
    action: Array
    """[T * N, width]: int64 categories, or float32 as sampled, before clipping to a Box."""
    logp: Floats
    """[T * N], log-probability of the action under the policy that sampled it."""
    value: Floats
    """[T * N], value estimates of the network that acted."""
    advantage: Floats
    """[T * N], already normalised if requested."""
    target: Floats
    """[T * N], targets of the value."""
    state: Array | None = None
    """Recurrent networks: [T // length, N, state_width], before each chunk's first step."""
    first: Array | None = None
    """Recurrent networks: bool [T * N], where an episode begins."""


class LossTerms(NamedTuple):
    """The coefficients of PPO's loss."""

    scale: float
    """Weight of one row: 1 / rows of the whole minibatch, of all slots."""
    clip: float
    """How far the ratio may leave 1."""
    value_clip: float
    """How far the value may leave the old one; 0: no limit."""
    value_coef: float
    entropy_coef: float


STATS = ("policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction")
"""The metrics of `gradient`, each a sum over its rows times `scale`."""


class Objective(Protocol):
    """Turns a network's outputs into actions and a loss."""

    def draw(self, outputs: Floats, noise: Floats, action: Array, logp: Floats) -> None:
        """Write an action [n, width] for each row of outputs [n, K], and its log-probability [n].

        Args:
            outputs: Outputs of the network.
            noise: [n, width], from the agent's `noise`.
            action: Output.
            logp: Output; 0 where actions have no probability.
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
        """Write the derivative of the loss of m rows w.r.t. outputs [m, K] and value [m].

        Args:
            outputs: Outputs of the network that learns.
            value: Values of the same network.
            rollout: All rows.
            rows: The m rows.
            terms: The coefficients of the loss, from the agent's `terms`.
            d_outputs: [m, K], output.
            d_value: [m], output.
            stats: One number for each of the agent's `stats`, incremented.

        Returns:
            -1, or the first of the m rows that does not exist, or whose action does not.
        """


class PolicyNet(Protocol):
    """A network that acts and learns."""

    row_exact: bool
    """Whether the bits of a row do not depend on the rows computed with it."""

    def act(self, obs: Any, noise: Floats, action: Array, logp: Floats, value: Floats) -> None:
        """Sample an action for each of n observations.

        Args:
            obs: [n, ...], or a dict of such arrays.
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
            obs: [n, ...], or a dict of such arrays.
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
        """Write the gradient of the loss over some rows, and the sums of its metrics.

        Args:
            rollout: All rows.
            rows: The rows to use.
            terms: The coefficients of the loss.
            grad: As long as the flat vector; overwritten.
            stats: One sum for each of the objective's metrics, overwritten.
        """
