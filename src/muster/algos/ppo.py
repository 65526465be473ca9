"""PPO: a policy that is moved by what it experienced, but never far from it.

Each rollout is learnt from several times, in minibatches; what moves the probability of an action
by more than `clip` counts no further. Schulman et al. 2017. Differences from the paper and from
other implementations are listed in docs/ppo.md.
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
        """Return the numbers of the loss, as the schedules have them at a step.

        Args:
            env_step: Environment steps so far.
            rows: Of a whole minibatch.
        """
        return self.loss_terms(env_step, rows, self._clip(env_step), self.cfg.value_clip)

    def learnt_enough(self, watched: float) -> bool:
        """Whether the policy has moved so far from the one that collected that this is enough."""
        return self.cfg.target_kl is not None and watched > self.cfg.target_kl
