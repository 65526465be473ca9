"""PQN: Q-learning in many environments at once, without replay and without a target network.

    act:      obs -> Q -> best action, or a random one with probability epsilon; value = max Q
    prepare:  R_t = r_t + gamma (lambda R_{t+1} + (1 - lambda) max Q_{t+1})
    gradient: rows of a rollout -> (Q of the action taken - R)^2 / 2 -> gradient

Gallici et al. 2024, "Simplifying Deep Temporal Difference Learning": layer normalisation provides
the stability that target networks are used for. R is the target of generalised advantages with max
Q as the value, so a rollout is prepared in the same way as for every agent in step. The sum is not
cut at random actions (Peng's Q(lambda)). docs/pqn.md lists the differences from the paper.
"""

from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from torch import nn

from muster.algos.pqn_config import PQNConfig
from muster.algos.rollout_agent import RolloutAgent
from muster.nets.build_policy import build_policy
from muster.nets.policy_net import Objective
from muster.nets.q_objective import QObjective, QTerms
from muster.nets.registry import Factory
from muster.rl_utils import get_epsilon_greedy_fn
from muster.rl_utils.losses.q import exploration

__all__ = ["PQN", "PQNConfig"]


class PQN(RolloutAgent):
    """A Q-network that acts and learns.

    Args:
        cfg: The algorithm's options.
        obs_space: Space of one observation.
        action_space: Space of one action; must be Discrete.
        seed: Seed of the initial weights and of the random numbers of `explore`.
        model: A class or function of (obs_space, n_actions) that builds the torch module from
            observations to Q [B, n_actions]. None: the model of the config.
    """

    cfg: PQNConfig
    stats = ("loss", "q_mean", "td_error_mean", "epsilon")
    watched = "loss"

    def __init__(
        self,
        cfg: PQNConfig,
        obs_space: gym.Space[Any],
        action_space: gym.Space[Any],
        seed: int = 0,
        model: Factory | None = None,
    ) -> None:
        cfg.check_actions(action_space)
        super().__init__(cfg, obs_space, action_space, seed, model)
        self.epsilon = get_epsilon_greedy_fn(cfg.eps_start, cfg.eps_end, cfg.eps_decay, "linear")
        """Maps environment steps to the probability of a random action."""

    def build(self, model: str | Factory | None, seed: int) -> nn.Module:
        """Return the network: a module from observations to (Q, max Q)."""
        cfg = self.cfg
        return build_policy(
            self.obs_space,
            self.head,
            cfg.hidden,
            False,
            cfg.activation,
            cfg.normalize_obs,
            model=model,
            layer_norm=cfg.layer_norm,
            critic=False,
            seed=seed,
        )

    def objective(self) -> Objective:
        """Return the objective: epsilon-greedy actions and the squared error of Q."""
        return QObjective()

    @property
    def decay(self) -> float:
        """Lambda of the targets."""
        return self.cfg.q_lambda

    def noise(
        self, rng: np.random.Generator, shape: tuple[int, ...], env_step: int
    ) -> NDArray[np.float32]:
        """Return the exploration noise [*shape, 1]: an action, or none (see `exploration`)."""
        uniform = rng.random((*shape, 1), np.float32)
        return exploration(uniform, self.epsilon(env_step))

    def terms(self, env_step: int, rows: int) -> QTerms:
        """Return the coefficients of the loss.

        Args:
            env_step: Environment steps so far.
            rows: Rows in the whole minibatch.
        """
        return QTerms(1 / rows, float(self.epsilon(env_step)))
