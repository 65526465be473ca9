"""Options of every algorithm that learns from unrolls of older weights, and their requirements.

An unroll is a few steps of all environments of one actor. Does not import torch.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from muster.algos.actor_critic_config import PolicyAndValueConfig
from muster.algos.options import check_number, check_roles, check_whole, refuse_together

MOST_UNROLL = 1_000_000
MOST_UNROLLS = 4_096
MOST_LAG = 10**9


@dataclass(frozen=True)
class UnrollConfig(PolicyAndValueConfig):
    """How unrolls are sized, gathered and corrected."""

    PROGRAM: ClassVar[str] = "stream"
    """The training program: a learner that uses each unroll once, alone or with actors."""
    OF_RUNS: ClassVar[Mapping[str, Any]] = {
        "num_envs": 8,
        "eval_every": 50_000,
        "checkpoint_every": 100_000,
    }
    """Run options whose default differs for this algorithm."""

    unroll: int = 20
    """Steps of every environment in one unroll; also a recurrent network's training sequence."""
    batch_unrolls: int = 1
    """Unrolls in one update, from one actor or several."""
    rho_bar: float = 1.0
    """V-trace: limit of the importance weight of a step's own TD error."""
    c_bar: float = 1.0
    """V-trace: limit of the importance weight with which later errors reach a step."""
    vtrace_lambda: float = 1.0
    """Lambda of V-trace: 0 trusts only the value estimates, 1 only the rewards."""
    normalize_advantage: bool = False
    """Normalise the advantages of a batch to mean 0 and standard deviation 1."""
    max_lag: int | None = None
    """With --workers: how many versions of the weights an unroll may lie behind when the learner
    uses it. The learner waits rather than exceed it. None: no limit."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("unroll", self.unroll, high=MOST_UNROLL)
        check_whole("batch_unrolls", self.batch_unrolls, high=MOST_UNROLLS)
        for name in ("rho_bar", "c_bar"):
            check_number(name, getattr(self, name), high=1e6, example=1)
        check_number("vtrace_lambda", self.vtrace_lambda, high=1, low_too=True, high_too=True)
        if self.max_lag is not None:
            check_whole("max_lag", self.max_lag, low=0, high=MOST_LAG)

    def in_flight(self, actors: int) -> int:
        """Return the maximum number of unrolls of an actor that are begun and not learnt from.

        Enough for one batch of all actors together, plus one per actor, so that no actor waits
        while the learner learns; fewer if `max_lag` requires it.
        """
        least = -(-self.batch_unrolls // actors)
        if self.max_lag is not None and self._least_lag(actors, least + 1) > self.max_lag:
            return least
        return least + 1

    def _least_lag(self, actors: int, each: int) -> int:
        """Return the lag that cannot be ruled out if every actor has begun `each` unrolls."""
        return -(-each * actors // self.batch_unrolls) - 1

    def default_workers(self, cores: int) -> int:
        """Return 0: one process is reproducible bit for bit; several processes are not."""
        return 0

    def check_run(self, workers: int | None, num_envs: int) -> None:
        """Raise OptionError for options that are impossible only in combination."""
        check_roles(workers, "an actor")
        if not workers or self.max_lag is None:
            return
        actors = workers - 2
        least = self._least_lag(actors, -(-self.batch_unrolls // actors))
        if self.max_lag < least:
            refuse_together(
                f"max_lag={self.max_lag}",
                f"workers={workers}",
                f"{actors} actors that begin together with batches of {self.batch_unrolls} "
                f"are {least} versions apart",
                f"max_lag={least}",
            )

    def check_resume(self, parts: Mapping[str, Any], num_envs: int) -> None:
        """Check nothing: a checkpoint holds no unrolls."""

    def rows_of_update(self, num_envs: int) -> int:
        """Return the steps of all environments in one update."""
        return self.unroll * self.batch_unrolls * num_envs

    def memory_needs(self, num_envs: int, obs_bytes: int, action_bytes: int) -> dict[str, int]:
        """Return the bytes of memory that options require, by the name of the option."""
        step = obs_bytes + action_bytes + 34  # plus seven numbers and two flags
        unroll = num_envs * (self.unroll + 1) * step
        return {
            "num_envs": num_envs * step,
            "unroll": unroll,
            "batch_unrolls": 2 * self.batch_unrolls * unroll,  # the current batch and the next
        }

    @staticmethod
    def lacks_replay(parts: Mapping[str, Any]) -> bool:
        """Return False: this algorithm has no replay."""
        return False
