"""The objective of Q-learners in step: epsilon-greedy actions, and the squared error."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from muster.nets.policy_net import Array, Floats, Rollout
from muster.rl_utils.losses.q import explore_or_best, q_loss


class QTerms(NamedTuple):
    """The coefficients of the loss."""

    scale: float
    """Weight of one row: 1 / rows of the whole minibatch, of all slots."""
    epsilon: float
    """Epsilon of the rollout, for the log."""


class QObjective:
    """Outputs are the values of actions: chooses the best action, or the one `noise` selects."""

    def draw(self, outputs: Floats, noise: Floats, action: Array, logp: Floats) -> None:
        """Write the best action of each row of outputs, or the exploring one."""
        explore_or_best(outputs, noise, action)
        logp[:] = 0

    def loss(
        self,
        outputs: Floats,
        value: Floats,
        rollout: Rollout,
        rows: NDArray[np.int64],
        terms: QTerms,
        d_outputs: Floats,
        d_value: Floats,
        stats: NDArray[np.float64],
    ) -> int:
        """Write the derivative of the squared error (see `q_loss`)."""
        d_value[:] = 0
        scale, epsilon = terms
        stats[3] += scale * epsilon * len(rows)
        return q_loss(outputs, rows, rollout.action, rollout.target, scale, d_outputs, stats[:3])
