"""REINFORCE with a baseline: an algorithm of your own, outside of muster (docs/own_algorithm.md).

    muster train reinforce:reinforce CartPole-v1                  # from the folder of this file
    muster train reinforce:reinforce CartPole-v1 --workers 0      # the same policy
    muster resume RUN --algo reinforce:reinforce --env-steps 400000
    muster eval RUN --algo reinforce:reinforce

It has a configuration (listed by `--help`) and an agent (which processes returns and has the loss).
muster provides everything else: environments, workers in step, checkpoints, metrics, evaluation.
"""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

import muster
from muster import OptionError
from muster.algos import ActorCriticConfig, Algorithm, RolloutRows, TorchLossAgent


@dataclass(frozen=True)
class ReinforceConfig(ActorCriticConfig):
    """Options of REINFORCE: the policy gradient of whole returns (Williams 1992)."""

    rollout: int = 64
    """Steps of every environment between two updates."""
    lr: float = 3e-3
    """Learning rate of Adam."""
    gamma: float = 0.98
    """Discount per environment step."""
    gae_lambda: float = 1.0
    """1: whole returns. Below 1, estimated values replace parts of the returns."""
    baseline: bool = True
    """Subtract the expected return, so that an action is compared with the average."""
    horizon: int = 400_000
    """Environment steps for which the run is planned."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.baseline is False and self.gae_lambda < 1:
            raise OptionError(
                f"baseline=False and gae_lambda={self.gae_lambda} contradict each other",
                "without a baseline there are only whole returns",
                "gae_lambda=1",
            )


class Reinforce(TorchLossAgent):
    """Makes actions more likely that were followed by a higher return than expected."""

    cfg: ReinforceConfig
    stats = ("policy_loss", "value_loss", "entropy")

    def prepare(self, slots: Any, reward: Any, columns: slice) -> None:
        """Fill the columns advantage and target of some environments.

        The base class sets `target` to the return (up to the end of the episode; if the rollout
        stops within an episode, plus the value of the rest) and `advantage` to the return minus the
        expected return.
        """
        super().prepare(slots, reward, columns)
        if not self.cfg.baseline:
            slots.advantage[:, columns] = slots.target[:, columns]

    def loss(
        self, outputs: Tensor, value: Tensor, rows: RolloutRows
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return the loss of each row, and the metrics of each row."""
        policy_loss = -self.log_prob(outputs, rows.action) * rows.advantage
        value_loss = 0.5 * (value - rows.target) ** 2
        entropy = self.entropy(outputs)
        loss = (
            policy_loss
            + self.cfg.value_coef * value_loss
            - self.entropy_coef(rows.env_step) * entropy
        )
        return loss, (policy_loss, value_loss, entropy)


reinforce = Algorithm(ReinforceConfig, Reinforce)
"""The object that `muster train reinforce:reinforce` names: module:name."""

if __name__ == "__main__":
    muster.register_algorithm("reinforce", reinforce)  # available under this name from here on
    result = muster.train("reinforce", "CartPole-v1", env_steps=4_096, eval_episodes=10)
    print(f"mean return {result.eval_return_mean:.0f} after {result.env_steps:,} steps")
    policy = muster.load_policy(result.run_dir)
    print("it would do", policy.act([0.0, 0.1, 0.02, -0.1]))
