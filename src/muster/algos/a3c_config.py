"""How A3C learns, checked when it is made. Without torch, as every configuration."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from muster.algos.a2c_config import A2CConfig
from muster.algos.options import check_roles, check_whole


@dataclass(frozen=True)
class A3CConfig(A2CConfig):
    """How A3C learns: short rollouts of each worker's own, each made into one gradient."""

    FIXED_ON_RESUME: ClassVar[frozenset[str]] = A2CConfig.FIXED_ON_RESUME - {
        "normalize_obs",
        "normalize_reward",
        "slots",
        "lag",
    }
    PROGRAM: ClassVar[str] = "gradients"
    """The training program: workers that send gradients, and a learner that applies them."""

    # Options of workers in step that have no meaning where each has a rollout of its own.
    slots: ClassVar[int] = 1  # type: ignore[misc]
    lag: ClassVar[int] = 0  # type: ignore[misc]
    normalize_obs: ClassVar[bool] = False  # type: ignore[misc]
    normalize_reward: ClassVar[bool] = False  # type: ignore[misc]
    normalize_advantage: ClassVar[bool] = False  # type: ignore[misc]

    episodes: int | None = None
    """End after so many episodes of all workers together. Default: no such limit."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.episodes is not None:
            check_whole("episodes", self.episodes)

    def default_workers(self, cores: int) -> int:
        """Return 0: one process is repeatable to the bit, and roles are not."""
        return 0

    def check_run(self, workers: int | None, num_envs: int) -> None:
        """Raise OptionError for what only these together make impossible."""
        check_roles(workers, "a worker")

    def check_resume(self, parts: Mapping[str, Any], num_envs: int) -> None:
        """Refuse nothing more: what does not fit is refused by who loads it."""
