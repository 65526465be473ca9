"""DQN: the Q-learner, with switches for the rest of Rainbow (Hessel et al. 2018).

    --quantiles M    a distribution of returns for each action (QR-DQN, Dabney et al. 2018)
    --noisy          random weights in place of random actions (Fortunato et al. 2018)
    --munchausen     soft targets with a share of log pi (Vieillard et al. 2020)

`q_learner` has the parts that all Q-learners share: acting, the plain loss, the target network.
"""

import copy
import math
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from torch import nn

from muster.algos.batches import StagedBatch, TransitionBatch
from muster.algos.dqn_config import DQNConfig
from muster.algos.q_learner import QLearner
from muster.envs.masks import is_masked
from muster.errors import OptionError
from muster.nets import FlatParameters
from muster.nets.noisy import NoisyNet, NoisyNetwork
from muster.nets.registry import Factory
from muster.rl_utils import get_epsilon_greedy_fn
from muster.rl_utils.losses.critics import quantile_loss
from muster.rl_utils.munchausen import munchausen_terms

Array = NDArray[Any]

__all__ = ["DQN", "DQNConfig", "make_dqn"]


def make_dqn(
    cfg: DQNConfig,
    obs_space: gym.Space[Any],
    action_space: gym.Space[Any],
    seed: int = 0,
    model: Factory | None = None,
) -> "DQN":
    """Return the agent for a configuration: a `RecurrentDQN` if its network is recurrent."""
    if not cfg.remembers:
        return DQN(cfg, obs_space, action_space, seed, model)
    from muster.algos.recurrent_dqn import RecurrentDQN

    return RecurrentDQN(cfg, obs_space, action_space, seed, model)


class DQN(QLearner):
    """A Q-network that acts and learns; the arguments are those of `QLearner`.

    With `quantiles`, your own model must have one output per quantile of each action.
    """

    cfg: DQNConfig

    def __init__(
        self,
        cfg: DQNConfig,
        obs_space: gym.Space[Any],
        action_space: gym.Space[Any],
        seed: int = 0,
        model: Factory | None = None,
    ) -> None:
        self._quantiles = max(1, cfg.quantiles)
        if cfg.quantiles and is_masked(obs_space):
            raise OptionError(
                f"quantiles={cfg.quantiles} is not possible with action masks",
                "a mask has one number for each action, and the network an output per quantile",
                "quantiles=0",
            )
        super().__init__(cfg, obs_space, action_space, seed, model)

    @property
    def outputs(self) -> int:
        """Outputs of the network per observation: quantiles, action by action."""
        return self._n_actions * self._quantiles

    def schedule(self) -> Callable[[float], float]:
        """Return the schedule: environment steps to the probability of a random action."""
        cfg = self.cfg
        if cfg.noisy:
            return lambda env_step: 0.0
        return get_epsilon_greedy_fn(cfg.eps_start, cfg.eps_end, cfg.eps_decay, cfg.eps_schedule)

    def act(self, obs: Any, epsilon: Any = 0.0) -> NDArray[np.int64]:
        """Return an action for each of N observations, without noise; see `QLearner.act`."""
        if self.cfg.noisy:
            self._net.settle()
        return super().act(obs, epsilon)

    def explore(self, obs: Any, epsilon: Any = None) -> NDArray[np.int64]:
        """Return the best actions, or random ones with probability `epsilon`.

        With noisy weights, the best actions are those of weights drawn for this call.
        """
        if not self.cfg.noisy:
            return super().explore(obs, epsilon)
        self._net.draw(self._rng)
        return super().act(obs, self.epsilon(math.inf) if epsilon is None else epsilon)

    def values(self, obs: Any) -> Array:
        """Return Q, [N, actions]; with quantiles, their means."""
        made = super().values(obs)
        return self._by_action(made).mean(axis=2) if self.cfg.quantiles else made

    def _build(self, model: str | Factory | None, seed: int) -> nn.Module:
        network = super()._build(model, seed)
        return NoisyNetwork(network) if self.cfg.noisy else network

    def _runner(self, module: nn.Module, weights: FlatParameters) -> Any:
        if isinstance(module, NoisyNetwork):
            return NoisyNet(module, weights)
        return super()._runner(module, weights)

    def _by_action(self, made: Array) -> Array:
        return made.reshape(len(made), self._n_actions, self._quantiles)

    def random_state(self) -> Any:
        """Return the state of the generator that updates draw noise from; None without noise."""
        return copy.deepcopy(self._rng.bit_generator.state) if self.cfg.noisy else None

    def load_random_state(self, state: Any) -> None:
        """Set the generator, so that the next update draws the same noise as another agent."""
        self._rng.bit_generator.state = state

    def _begin_update(self) -> None:
        if self.cfg.noisy:
            self._net.draw(self._rng)
            self._target.draw(self._rng)

    def _loss(self, batch: TransitionBatch) -> tuple[Array, Array, list[float]]:
        cfg = self.cfg
        if not (cfg.quantiles or cfg.munchausen):
            return super()._loss(batch)
        action, reward, discount, weight = self._columns(batch)
        wrong = np.flatnonzero((action < 0) | (action >= self._n_actions))
        if wrong.size:
            raise self._no_action(action, int(wrong[0]))
        rows = np.arange(len(action))
        there = StagedBatch(batch, self.weights.device)
        next_q = self._by_action(self._target.predict(there.next_obs))
        if cfg.munchausen:
            now = self._by_action(self._target.predict(there.obs)).mean(axis=2)
            terms = cfg.munchausen_alpha, cfg.munchausen_tau
            bonus, follows = munchausen_terms(now, action, next_q, *terms)
            reward = reward + bonus
        else:
            choose_by = self.values(there.next_obs) if cfg.double else next_q.mean(axis=2)
            follows = next_q[rows, choose_by.argmax(axis=1)]
        target = (reward[:, None] + discount[:, None] * follows).astype(np.float32)
        made = self._net.forward(there.obs)
        if not cfg.quantiles:
            none = np.zeros(len(action), np.float32)
            given = np.ascontiguousarray(target[:, 0])
            dq, self.td_error, sums = self._td(made, action, given, none, made, made, weight)
            return made, dq, sums
        mine = self._by_action(made)[rows, action]
        found = quantile_loss(mine[:, None], target, weight, len(action))
        self.td_error = found.td_error
        dq = np.zeros_like(made)
        self._by_action(dq)[rows, action] = found.dvalues[:, 0]
        q_mean = float(np.mean(mine, dtype=np.float64))
        return made, dq, [found.loss, q_mean, float(np.abs(self.td_error).mean(dtype=np.float64))]
