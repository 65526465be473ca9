"""Ape-X: DQN with many actors, a separate epsilon per environment, and priorities by actors.

    actor:    obs -> Q -> best action, or a random one with probability epsilon_i
              a full fragment -> n-step targets, of these same Q -> priorities -> replay
    learner:  as DQN, with double Q-learning, dueling streams and prioritised replay

Horgan et al. 2018. An actor computes priorities from the Q-values that it acted with. It evaluates
the network again only for observations that it did not act on: those after the last step of a
fragment, and the last ones of truncated episodes.
"""

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from muster.algos.apex_config import ApexConfig
from muster.algos.batches import count_rows
from muster.algos.q_config import QLearningConfig
from muster.algos.q_learner import QLearner
from muster.data.block import StepBlock
from muster.data.obs import at
from muster.data.schema import PRIORITY
from muster.nets.registry import Factory
from muster.rl_utils.returns import n_step_targets

Array = NDArray[Any]

__all__ = ["ApeX", "ApexConfig"]


class ApeX(QLearner):
    """A Q-network that acts with a different epsilon in each environment, and learns.

    The arguments are those of `QLearner`.
    """

    def __init__(
        self,
        cfg: QLearningConfig,
        obs_space: gym.Space[Any],
        action_space: gym.Space[Any],
        seed: int = 0,
        model: Factory | None = None,
    ) -> None:
        super().__init__(cfg, obs_space, action_space, seed, model)
        self._q: Array = np.empty((0, self._n_actions), np.float32)
        """Q-values of the last actions, [N, actions]."""
        self._acted_by: list[Array] = []
        """Q-values of each step of the fragment that is being filled."""

    def epsilon_of(self, env_step: float, envs: range, total: int) -> Array:
        """Return the probability of a random action in each environment; constant over time."""
        place = np.asarray(envs, np.float64) / max(1, total - 1)
        found: Array = self.cfg.eps_base ** (1 + self.cfg.eps_alpha * place)
        return found

    def explore(self, obs: Any, epsilon: Any = None) -> NDArray[np.int64]:
        """Return the best actions, or random ones with probability `epsilon`; see `act`."""
        epsilon = self.cfg.eps_base if epsilon is None else epsilon
        # An array, so that `act` computes Q for any epsilon; `write` needs it.
        return self.act(obs, np.broadcast_to(epsilon, (count_rows(obs, self.obs_space),)))

    def write(self, rows: dict[str, Array]) -> None:
        """Keep the Q-values of the last actions; `complete` computes priorities from them."""
        self._acted_by.append(self._q)

    def complete(self, block: StepBlock) -> None:
        """Fill in the priorities of a fragment: the absolute TD errors."""
        acted_by, self._acted_by = self._acted_by, []
        if not self.cfg.prioritized:
            return
        q = np.stack(acted_by)
        done = (block.action - self._first_action)[..., None]
        after = np.concatenate([q[1:], self._q_after(block)[None]]).max(axis=-1)
        cut = block.truncated & ~block.terminated
        if cut.any():
            after[cut] = self._q_of_finals(block, cut).max(axis=-1)
        target = self._targets(block, after)
        block.columns[PRIORITY.name][:] = np.abs(
            np.take_along_axis(q, done, axis=-1)[..., 0] - target
        )

    def schedule(self) -> Callable[[float], float]:
        """Return the schedule of epsilon: constant, the epsilon of the first environment."""
        return lambda env_step: self.cfg.eps_base

    def _best(self, obs: Any) -> NDArray[np.int64]:
        self._q = self.values(obs)
        best: NDArray[np.int64] = self._q.argmax(axis=1)
        return best

    def _targets(self, block: StepBlock, after: Array) -> Array:
        """Return the TD targets [T, N], given the values of the states after each step."""
        ends = block.terminated, block.truncated
        return n_step_targets(block.reward, *ends, after, self.cfg.gamma, self.cfg.n_step)

    def _q_after(self, block: StepBlock) -> Array:
        """Return Q of the observations after the last step, [N, actions]."""
        return self.values(at(block.seen, -1))

    def _q_of_finals(self, block: StepBlock, cut: NDArray[np.bool_]) -> Array:
        """Return Q of the last observations of truncated episodes, [E, actions]."""
        return self.values(at(block.finals, which_finals(block, cut)))


def which_finals(block: StepBlock, steps: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which final observations of a block belong to these steps [T, N], all of them ends."""
    return steps[block.terminated | block.truncated]
