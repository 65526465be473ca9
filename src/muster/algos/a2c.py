"""A2C: a policy that learns once from each rollout.

The synchronous form of A3C (Mnih et al. 2016): a short rollout of all environments, then one
update. The policy that learns is the policy that collected, so there is no probability ratio to
clip. docs/a2c.md lists the differences from other implementations.
"""

from muster.algos.a2c_config import A2CConfig
from muster.algos.actor_critic import ActorCriticAgent
from muster.nets.policy_net import LossTerms

__all__ = ["A2C", "A2CConfig"]


class A2C(ActorCriticAgent):
    """An `ActorCriticAgent` with the policy-gradient loss."""

    cfg: A2CConfig

    def terms(self, env_step: int, rows: int) -> LossTerms:
        """Return the coefficients of the loss, with all schedules evaluated at a step.

        Args:
            env_step: Environment steps so far.
            rows: Rows in the whole rollout.
        """
        return self.loss_terms(env_step, rows)
