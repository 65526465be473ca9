"""Agents with a policy and a value that learn from advantages.

PolicyAndValueAgent   the network, the distribution and the clipped loss
ActorCriticAgent      in step with its rollouts: generalised advantages (Schulman et al. 2016)

An algorithm defines the coefficients of its loss with `terms`.
"""

from typing import Any

import gymnasium as gym
from torch import nn

from muster.algos.actor_critic_config import ActorCriticConfig, PolicyAndValueConfig
from muster.algos.rollout_agent import RolloutAgent
from muster.nets.build_policy import build_policy
from muster.nets.clipped_objective import ClippedObjective
from muster.nets.policy_net import STATS, LossTerms, Objective
from muster.nets.registry import Factory
from muster.rl_utils.schedules import line

NEVER = 1e9
"""A limit for the ratio that is never reached."""


class PolicyAndValueAgent(RolloutAgent):
    """A policy network that acts and learns.

    Args:
        cfg: The algorithm's options.
        obs_space: Space of one observation.
        action_space: Space of one action: Discrete, MultiDiscrete, or a Box of floats.
        seed: Seed of the initial weights and of the random numbers of `explore`.
        model: A class or function of (obs_space, outputs) that builds the torch module from
            observations to (outputs, value). None: the model of the config.
    """

    cfg: PolicyAndValueConfig
    stats: tuple[str, ...] = STATS
    watched = "approx_kl"

    def __init__(
        self,
        cfg: PolicyAndValueConfig,
        obs_space: gym.Space[Any],
        action_space: gym.Space[Any],
        seed: int = 0,
        model: Factory | None = None,
    ) -> None:
        super().__init__(cfg, obs_space, action_space, seed, model)
        self.entropy_coef = line(cfg.entropy_coef, cfg.entropy_end, cfg.horizon)
        """Maps environment steps to the weight of the entropy."""

    def build(self, model: str | Factory | None, seed: int) -> nn.Module:
        """Return the network: a module from observations to (outputs, value)."""
        cfg = self.cfg
        return build_policy(
            self.obs_space,
            self.head,
            cfg.hidden,
            cfg.shared,
            cfg.activation,
            cfg.normalize_obs,
            cfg.log_std,
            model,
            seed=seed,
        )

    def objective(self) -> Objective:
        """Return the objective: the action distribution and the clipped loss."""
        return ClippedObjective(self.head)

    def loss_terms(
        self, env_step: int, rows: int, clip: float = NEVER, value_clip: float = 0.0
    ) -> LossTerms:
        """Return the coefficients of the loss, with all schedules evaluated at a step.

        Args:
            env_step: Environment steps so far.
            rows: Rows in the whole minibatch.
            clip: How far the ratio may leave 1. By default there is no limit.
            value_clip: How far a value may move from its estimate in the rollout; 0: no limit.
        """
        entropy_coef = self.entropy_coef(env_step)
        numbers = (1 / rows, clip, value_clip, self.cfg.value_coef, entropy_coef)
        return LossTerms(*map(float, numbers))  # an int would make numba compile the kernels again

    @property
    def standardizes(self) -> bool:
        """Whether advantages are normalised (mean 0, standard deviation 1) over all slots."""
        return self.cfg.normalize_advantage


class ActorCriticAgent(PolicyAndValueAgent):
    """A `PolicyAndValueAgent` that learns in step with its rollouts."""

    cfg: ActorCriticConfig

    @property
    def decay(self) -> float:
        """Lambda of the advantages."""
        return self.cfg.gae_lambda
