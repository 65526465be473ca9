"""PPO: policy gradients with a limit on how far each rollout may move the policy.

The policy learns from each rollout several times, in minibatches. Once the probability of an action
has moved by more than `clip`, that action has no further gradient. Schulman et al. 2017.
docs/ppo.md lists the differences from the paper and from other implementations.
"""

import functools
from collections.abc import Callable

from muster.algos.actor_critic import ActorCriticAgent
from muster.algos.ppo_config import PPOConfig
from muster.algos.rollout_agent import PARTS
from muster.nets.policy_net import LossTerms
from muster.rl_utils.schedules import line

__all__ = ["PARTS", "PPO", "PPOConfig"]


class PPO(ActorCriticAgent):
    """An `ActorCriticAgent` with the clipped loss."""

    cfg: PPOConfig

    @functools.cached_property
    def _clip(self) -> Callable[[int], float]:
        return line(self.cfg.clip, self.cfg.clip_end, self.cfg.horizon)

    def terms(self, env_step: int, rows: int) -> LossTerms:
        """Return the coefficients of the loss, with all schedules evaluated at a step.

        Args:
            env_step: Environment steps so far.
            rows: Rows in the whole minibatch.
        """
        return self.loss_terms(env_step, rows, self._clip(env_step), self.cfg.value_clip)

    def learnt_enough(self, watched: float) -> bool:
        """Whether the policy has moved far enough from the policy that collected the rollout."""
        return self.cfg.target_kl is not None and watched > self.cfg.target_kl
