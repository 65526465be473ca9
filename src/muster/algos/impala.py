"""IMPALA: a policy gradient on unrolls of older weights, corrected by V-trace.

Espeholt et al. 2018. V-trace weights the advantages, so the loss needs no probability ratio and no
clipping. docs/impala.md lists the differences from the paper.
"""

from muster.algos.impala_config import IMPALAConfig
from muster.algos.unroll_agent import UnrollAgent
from muster.nets.policy_net import LossTerms

__all__ = ["IMPALA", "IMPALAConfig"]


class IMPALA(UnrollAgent):
    """An `UnrollAgent` with the policy-gradient loss."""

    cfg: IMPALAConfig
    WEIGHS = True

    def terms(self, env_step: int, rows: int) -> LossTerms:
        """Return the coefficients of the loss, with all schedules evaluated at a step.

        Args:
            env_step: Environment steps so far.
            rows: Rows in the whole batch.
        """
        return self.loss_terms(env_step, rows)
