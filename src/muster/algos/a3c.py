"""A3C: workers compute gradients for the newest weights, and no worker waits for another.

Asynchronous advantage actor-critic (Mnih et al. 2016): the loss is that of A2C, but each worker
collects its own short rollout. The learner applies each gradient when it arrives, to weights that
other workers may have changed since. docs/a3c.md lists the differences from the paper.
"""

from muster.algos.a3c_config import A3CConfig
from muster.algos.actor_critic import PolicyAndValueAgent
from muster.nets.policy_net import LossTerms

__all__ = ["A3C", "A3CConfig"]


class A3C(PolicyAndValueAgent):
    """A `PolicyAndValueAgent` with the policy-gradient loss."""

    cfg: A3CConfig

    @property
    def decay(self) -> float:
        """Lambda of the advantages."""
        return self.cfg.gae_lambda

    def terms(self, env_step: int, rows: int) -> LossTerms:
        """Return the coefficients of the loss, with all schedules evaluated at a step.

        Args:
            env_step: Environment steps so far.
            rows: Rows in the whole rollout.
        """
        return self.loss_terms(env_step, rows)
