"""The objective of PPO and related algorithms: a distribution of actions, and the clipped loss."""

import numpy as np
from numpy.typing import NDArray

from muster.nets.action_head import ActionHead
from muster.nets.policy_net import Array, Floats, LossTerms, Rollout
from muster.rl_utils.losses.ppo import ppo_loss, sample_actions


class ClippedObjective:
    """Samples actions from the distribution that outputs describe; the loss is `ppo_loss`.

    Args:
        head: How the outputs are interpreted.
    """

    def __init__(self, head: ActionHead) -> None:
        self._gaussian = head.gaussian
        self._sizes = np.array(head.sizes, np.int64)

    def draw(self, outputs: Floats, noise: Floats, action: Array, logp: Floats) -> None:
        """Sample an action for each row of outputs (see `sample_actions`)."""
        sample_actions(outputs, noise, self._gaussian, self._sizes, action, logp)

    def loss(
        self,
        outputs: Floats,
        value: Floats,
        rollout: Rollout,
        rows: NDArray[np.int64],
        terms: LossTerms,
        d_outputs: Floats,
        d_value: Floats,
        stats: NDArray[np.float64],
    ) -> int:
        """Write the derivative of the clipped loss (see `ppo_loss`)."""
        return ppo_loss(
            outputs,
            value,
            rows,
            rollout.action,
            rollout.logp,
            rollout.value,
            rollout.advantage,
            rollout.target,
            self._gaussian,
            self._sizes,
            *terms,
            d_outputs,
            d_value,
            stats,
        )
