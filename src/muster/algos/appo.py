"""APPO: PPO's clipped loss on what actors did with older weights, with V-trace's values.

The ratio of the loss is to the policy that acted, so it weighs the advantages, and V-trace does not
weigh them again. Differences from other implementations are listed in docs/appo.md.
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
