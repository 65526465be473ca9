"""IMPALA: a policy gradient on what actors did with older weights, corrected by V-trace.

Espeholt et al. 2018. Since V-trace weighs the advantages, the loss needs no ratio of probabilities,
and there is nothing to be clipped. Differences from the paper are listed in docs/impala.md.
"""

from muster.algos.impala_config import IMPALAConfig
from muster.algos.unroll_agent import UnrollAgent
from muster.nets.policy_net import LossTerms

__all__ = ["IMPALA", "IMPALAConfig"]


class IMPALA(UnrollAgent):
    """An `UnrollAgent` whose loss is that of the policy gradient."""

    cfg: IMPALAConfig
    WEIGHS = True

    def terms(self, env_step: int, rows: int) -> LossTerms:
        """Return the coefficients of the loss, with all schedules evaluated at a step.

        Args:
            env_step: Environment steps so far.
            rows: Rows in the whole batch.
        """
        return self.loss_terms(env_step, rows)
