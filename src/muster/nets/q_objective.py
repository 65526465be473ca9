"""What Q-learners in step make of a network's outputs: the best action, and the squared error."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from muster.nets.policy_net import Array, Floats, Rollout
from muster.rl_utils.losses.q import explore_or_best, q_loss


class QTerms(NamedTuple):
    """The numbers of the loss."""

    scale: float
    """What one row counts: 1 / rows of the whole minibatch, of all slots."""
    epsilon: float
    """Of the rollout, for the log."""


class QObjective:
    """Outputs are the values of actions: the best is taken, or what `noise` names."""

    def draw(self, outputs: Floats, noise: Floats, action: Array, logp: Floats) -> None:
        """Write the best action of each row of outputs, or the one to explore with."""
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
