"""`UnrollAgent`: the base class of agents that learn from unrolls of older weights.

    act:      as every agent with a policy and a value
    correct:  rewards, values, log-probabilities then and now -> V-trace -> advantages, targets
    gradient: all rows of a batch -> loss -> gradient       (by `net`)
    step:     norm clipped -> Adam

`muster.workers` has the code around an agent: unrolls, their collectors, and their maximum age.
"""

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from muster.algos.actor_critic import PolicyAndValueAgent
from muster.algos.unroll_config import UnrollConfig
from muster.data.slots import Slots
from muster.rl_utils.vtrace import vtrace

_SMALL = 1e-8


class UnrollAgent(PolicyAndValueAgent):
    """A `PolicyAndValueAgent` with V-trace advantages (Espeholt et al. 2018)."""

    cfg: UnrollConfig
    WEIGHS: ClassVar[bool]
    """Whether V-trace weights the advantages. The loss then does not: its ratio is 1."""

    @property
    def decay(self) -> float:
        """Lambda of V-trace."""
        return self.cfg.vtrace_lambda

    @property
    def metrics(self) -> tuple[str, ...]:
        """The `stats` to write; a ratio that is always 1 is left out."""
        return self.stats[:3] if self.WEIGHS else self.stats

    def correct(self, slots: Slots, logp: NDArray[np.float32]) -> dict[str, float]:
        """Fill the columns advantage and target, and set `slots.logp` to the divisor of the ratio.

        Args:
            slots: A batch of unrolls, with `value` and `final_value` of the weights that learn, and
                `logp` of the weights that acted.
            logp: [T, N], of the same actions under the weights that learn.

        Returns:
            How far the policy has moved since: `rho`, the mean weight of a step, and
                `behaviour_kl`, the divergence from the policy that acted.
        """
        cfg = self.cfg
        log_ratio = logp - slots.logp
        vtrace(
            slots.reward,
            slots.value,
            slots.terminated,
            slots.truncated,
            slots.final_value,
            log_ratio,
            float(cfg.gamma),  # an int would make numba compile the kernel again
            float(cfg.vtrace_lambda),
            float(cfg.rho_bar),
            float(cfg.c_bar),
            self.WEIGHS,
            slots.target,
            slots.advantage,
        )
        if self.standardizes:
            slots.advantage -= slots.advantage.mean()
            slots.advantage /= slots.advantage.std() + np.float32(_SMALL)
        if self.WEIGHS:
            slots.logp[:] = logp
        with np.errstate(over="ignore"):
            ratio = np.exp(log_ratio.astype(np.float64))
        return {
            "rho": float(np.minimum(ratio, cfg.rho_bar).mean()),
            "behaviour_kl": float((ratio - 1 - log_ratio).mean()),
        }
