"""R2D2: recurrent Ape-X, which learns from sequences of steps.

    actor:    as `RecurrentQLearner`, with an epsilon for each environment
              priorities of a full fragment -> replay
    learner:  as `RecurrentQLearner`, with double Q-learning and rescaled values

Kapturowski et al. 2019.
"""

from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from muster.algos.apex import ApeX, which_finals
from muster.algos.r2d2_config import R2D2Config
from muster.algos.recurrent_q_learner import RecurrentQLearner
from muster.data.block import StepBlock
from muster.data.obs import at
from muster.nets.registry import Factory
from muster.rl_utils.rescaling import rescale, undo_rescale

Array = NDArray[Any]

__all__ = ["R2D2", "R2D2Config"]


class R2D2(RecurrentQLearner, ApeX):
    """A recurrent Q-network that acts with a different epsilon in each environment, and learns.

    The arguments are those of `RecurrentQLearner`.
    """

    cfg: R2D2Config

    def __init__(
        self,
        cfg: R2D2Config,
        obs_space: gym.Space[Any],
        action_space: gym.Space[Any],
        seed: int = 0,
        model: Factory | None = None,
    ) -> None:
        super().__init__(cfg, obs_space, action_space, seed, model)
        self._after: list[Array] = []
        """The recurrent state after each step of the fragment that is being filled."""

    def write(self, rows: dict[str, Array]) -> None:
        """Write the recurrent state before the last step, and keep the step's Q-values."""
        super().write(rows)
        ApeX.write(self, rows)
        self._after.append(self._exploring.copy())

    def complete(self, block: StepBlock) -> None:
        """Fill in the priorities of a fragment: the absolute TD errors."""
        super().complete(block)
        self._after.clear()

    def _q_after(self, block: StepBlock) -> Array:
        return self._step(at(block.seen, -1), self._exploring.copy())

    def _q_of_finals(self, block: StepBlock, cut: NDArray[np.bool_]) -> Array:
        remembered = np.stack(self._after)[cut]
        return self._step(at(block.finals, which_finals(block, cut)), remembered)

    def _targets(self, block: StepBlock, after: Array) -> Array:
        return self._scaled(super()._targets(block, self._unscaled(after)))

    def _scaled(self, x: Array) -> Array:
        return rescale(x, self.cfg.rescale_eps) if self.cfg.rescale else x

    def _unscaled(self, y: Array) -> Array:
        return undo_rescale(y, self.cfg.rescale_eps) if self.cfg.rescale else y
