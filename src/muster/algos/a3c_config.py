"""Options of A3C, validated on construction. Does not import torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from muster.algos.actor_critic_config import PolicyAndValueConfig
from muster.algos.in_step_config import MOST_ROLLOUT
from muster.algos.options import check_number, check_roles, check_whole


@dataclass(frozen=True)
class A3CConfig(PolicyAndValueConfig):
    """Options of A3C: each worker computes one gradient per short rollout."""

    FIXED_ON_RESUME: ClassVar[frozenset[str]] = PolicyAndValueConfig.FIXED_ON_RESUME - {
        "normalize_obs"
    }
    PROGRAM: ClassVar[str] = "gradients"
    """The training program: workers that send gradients, and a learner that applies them."""
    OF_RUNS: ClassVar[Mapping[str, Any]] = {
        "num_envs": 8,
        "eval_every": 50_000,
        "checkpoint_every": 100_000,
    }
    """Run options whose default differs for this algorithm."""

    # These options would need the rollouts of all workers together.
    normalize_obs: ClassVar[bool] = False  # type: ignore[misc]
    normalize_advantage: ClassVar[bool] = False  # type: ignore[misc]

    rollout: int = 8
    """Steps of every environment of a worker between gradients."""
    lr: float = 7e-4
    """Learning rate of Adam."""
    gae_lambda: float = 1.0
    """Lambda of the advantages: 0 trusts only the value estimates, 1 only the rewards."""
    episodes: int | None = None
    """End the run after this many episodes of all workers together. None: no such limit."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("rollout", self.rollout, high=MOST_ROLLOUT)
        check_number("gae_lambda", self.gae_lambda, high=1, low_too=True, high_too=True)
        if self.episodes is not None:
            check_whole("episodes", self.episodes)

    def default_workers(self, cores: int) -> int:
        """Return 0: one process is reproducible bit for bit; several processes are not."""
        return 0

    def check_run(self, workers: int | None, num_envs: int) -> None:
        """Raise OptionError for options that are impossible only in combination."""
        check_roles(workers, "a worker")

    def check_resume(self, parts: Mapping[str, Any], num_envs: int) -> None:
        """Check nothing more: the code that loads a part rejects a part that does not fit."""

    def limit_reached(self, parts: Mapping[str, Any]) -> str | None:
        """Return `episodes` if the run of a checkpoint has reached its limit of episodes."""
        used_up = self.episodes is not None and parts["budget"]["episode"] >= self.episodes
        return "episodes" if used_up else None

    def rows_of_update(self, num_envs: int) -> int:
        """Return the steps of all environments of a worker in one update."""
        return self.rollout * num_envs

    def memory_needs(self, num_envs: int, obs_bytes: int, action_bytes: int) -> dict[str, int]:
        """Return the bytes of memory that options require, by the name of the option."""
        step = obs_bytes + action_bytes + 30  # plus six numbers and two flags
        return {"num_envs": num_envs * step, "rollout": num_envs * (self.rollout + 1) * step}

    @staticmethod
    def lacks_replay(parts: Mapping[str, Any]) -> bool:
        """Return False: this algorithm has no replay."""
        return False
