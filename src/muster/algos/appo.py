"""APPO: PPO's clipped loss on unrolls of older weights, with value targets by V-trace.

The ratio in the loss is relative to the policy that acted. It already weights the advantages, so
V-trace does not weight them again. docs/appo.md lists the differences from other implementations.
"""

import functools
from collections.abc import Callable

from muster.algos.appo_config import APPOConfig
from muster.algos.unroll_agent import UnrollAgent
from muster.nets.policy_net import LossTerms
from muster.rl_utils.schedules import line

__all__ = ["APPO", "APPOConfig"]


class APPO(UnrollAgent):
    """An `UnrollAgent` with the clipped loss."""

    cfg: APPOConfig
    WEIGHS = False

    @functools.cached_property
    def _clip(self) -> Callable[[int], float]:
        return line(self.cfg.clip, self.cfg.clip_end, self.cfg.horizon)

    def terms(self, env_step: int, rows: int) -> LossTerms:
        """Return the coefficients of the loss, with all schedules evaluated at a step.

        Args:
            env_step: Environment steps so far.
            rows: Rows in the whole batch.
        """
        return self.loss_terms(env_step, rows, self._clip(env_step))
