"""Options of every algorithm that learns in step with its rollouts, and their requirements."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from muster.algos.network_config import NetworkConfig
from muster.algos.options import check_flag, check_whole, refuse_together
from muster.errors import OptionError

MOST_SLOTS = 4_096
MOST_ROLLOUT = 1_000_000


@dataclass(frozen=True)
class InStepConfig(NetworkConfig):
    """How rollouts are collected, divided and normalised."""

    FIXED_ON_RESUME: ClassVar[frozenset[str]] = NetworkConfig.FIXED_ON_RESUME | {
        "normalize_reward",
        "rollout",
        "sequence",
        "slots",
        "lag",
    }
    """Options that define a run: its network, and how its rollouts are divided."""
    PROGRAM: ClassVar[str] = "in_step"
    """The training program: equal workers that collect and learn in step."""
    OF_RUNS: ClassVar[Mapping[str, Any]] = {
        "num_envs": 8,
        "eval_every": 50_000,
        "checkpoint_every": 100_000,
    }
    """Run options whose default differs for this algorithm."""

    rollout: int = 128
    """Steps of every environment between learning phases."""
    normalize_reward: bool = False
    """Divide rewards by the standard deviation of the discounted return."""
    sequence: int = 16
    """Recurrent networks: steps in one training sequence."""
    slots: int = 4
    """Blocks of environments; also the maximum number of workers. The result depends on it."""
    lag: int = 0
    """1: collect the next rollout during learning, with the weights from before that learning."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("rollout", self.rollout, high=MOST_ROLLOUT)
        check_whole("sequence", self.sequence, high=MOST_ROLLOUT)
        check_whole("slots", self.slots, high=MOST_SLOTS)
        check_whole("lag", self.lag, low=0, high=1)
        for name, count in zip(("epochs", "minibatches"), self.passes(), strict=True):
            check_whole(name, count, high=100_000)
        check_flag("normalize_reward", self.normalize_reward)
        if self._remembers and self.rollout % self.sequence:
            refuse_together(
                f"rollout={self.rollout}",
                f"sequence={self.sequence}",
                "a rollout must consist of whole sequences",
                f"sequence={_divisor(self.rollout, self.sequence)}",
            )

    def passes(self) -> tuple[int, int]:
        """Return the epochs per rollout, and the minibatches per epoch."""
        return 1, 1

    def default_workers(self, cores: int) -> int:
        """Return one worker per core, at most one per slot: the result does not depend on it."""
        return min(cores, self.slots)

    def check_run(self, workers: int | None, num_envs: int) -> None:
        """Raise OptionError for options that are impossible only in combination."""
        if num_envs % self.slots:
            refuse_together(
                f"num_envs={num_envs}",
                f"slots={self.slots}",
                "every slot has the same number of environments",
                f"num_envs={-(-num_envs // self.slots) * self.slots}",
            )
        rows = self.rollout * (num_envs // self.slots)
        pieces = rows // self.sequence if self._remembers else rows
        _, minibatches = self.passes()
        if pieces % minibatches:
            what = "sequences" if self._remembers else "steps"
            refuse_together(
                f"minibatches={minibatches}",
                f"rollout={self.rollout}",
                f"a slot has {pieces} {what}, which cannot be divided into {minibatches} equal "
                "parts",
                f"minibatches={_divisor(pieces, minibatches)}",
            )
        if workers is not None and workers > self.slots:
            refuse_together(
                f"workers={workers}",
                f"slots={self.slots}",
                "every worker needs at least one slot",
                f"workers={self.slots}",
            )

    def check_resume(self, parts: Mapping[str, Any], num_envs: int) -> None:
        """Raise OptionError for a checkpoint whose rollouts have another shape or lag."""
        saved = parts["rollouts"]
        now = {"num_envs": num_envs, "rollout": self.rollout, "lag": self.lag}
        before = {
            "num_envs": int(saved["envs"]["num_envs"]),
            "rollout": int(saved["steps"]),
            "lag": int(saved["lag"]),
        }
        for name, value in before.items():
            if value != now[name]:
                raise OptionError(
                    f"the run was saved with {name}={value}",
                    f"the resumed run has {name}={now[name]}, and would count its steps "
                    "differently",
                    f"{name}={value}",
                )

    def rows_of_update(self, num_envs: int) -> int:
        """Return the steps of all environments in one update."""
        return self.rollout * num_envs // self.passes()[1]

    def memory_needs(self, num_envs: int, obs_bytes: int, action_bytes: int) -> dict[str, int]:
        """Return the bytes of memory that options require, by the name of the option."""
        step = obs_bytes + action_bytes + 30  # plus six numbers and two flags
        rows = num_envs * (self.rollout + 1) * (1 + self.lag)
        epochs, _ = self.passes()
        orders = epochs * num_envs * self.rollout * 8
        return {"num_envs": num_envs * step, "rollout": rows * step, "epochs": orders}

    @staticmethod
    def lacks_replay(parts: Mapping[str, Any]) -> bool:
        """Return False: algorithms in step have no replay."""
        return False


@dataclass(frozen=True)
class Epochs:
    """Options for several epochs per rollout. Must come before the other base class."""

    epochs: int = 4
    """Number of passes over each rollout."""
    minibatches: int = 4
    """Parts into which each epoch divides a rollout: updates per epoch."""

    def passes(self) -> tuple[int, int]:
        """Return the epochs per rollout, and the minibatches per epoch."""
        return self.epochs, self.minibatches


def _divisor(number: int, near: int) -> int:
    """Return the largest divisor of `number` that does not exceed `near`."""
    return next(each for each in range(min(near, number), 0, -1) if number % each == 0)
