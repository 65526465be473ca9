"""A2C: a policy that is moved by what it just experienced, once.

The synchronous form of A3C (Mnih et al. 2016): a short rollout of all environments, one update.
Since the policy that learns is the one that collected, no ratio of probabilities is to be clipped.
Differences from other implementations are listed in docs/a2c.md.
"""

from muster.algos.a2c_config import A2CConfig
from muster.algos.actor_critic import ActorCriticAgent
from muster.nets.policy_net import LossTerms

__all__ = ["A2C", "A2CConfig"]


class A2C(ActorCriticAgent):
    """An `ActorCriticAgent` whose loss is that of the policy gradient."""

    cfg: A2CConfig

    def terms(self, env_step: int, rows: int) -> LossTerms:
        """Return the coefficients of the loss, with all schedules evaluated at a step.

        Args:
            env_step: Environment steps so far.
            rows: Rows in the whole rollout.
        """
        return self.loss_terms(env_step, rows)
