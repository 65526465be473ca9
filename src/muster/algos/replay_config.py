"""Options of every algorithm that learns from replay, and their requirements."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

from muster.algos.options import (
    MOST_ROWS,
    check_flag,
    check_number,
    check_roles,
    check_whole,
    refuse_together,
)
from muster.errors import OptionError

if TYPE_CHECKING:
    from muster.data.schema import Column
    from muster.data.units import Sequence, Transition

MOST_SHARDS = 64
"""A single learner receives from all of them."""


@dataclass(frozen=True)
class ReplayConfig(ABC):
    """How experience is stored and sampled."""

    FIXED_ON_RESUME: ClassVar[frozenset[str]] = frozenset(
        {"buffer_size", "replay_shards", "prioritized", "alpha"}
    )
    """Options that define the layout of replay."""
    UPDATES: ClassVar[str]
    """Name of the option that sets the number of updates."""
    PROGRAM: ClassVar[str] = "replay"
    """The training program: a learner with replay, alone or with actors."""
    OF_RUNS: ClassVar[Mapping[str, Any]] = {}
    """Run options whose default differs for this algorithm."""

    gamma: float = 0.99
    """Discount per environment step."""
    batch_size: int = 64
    """Transitions per update."""
    buffer_size: int = 100_000
    """Capacity of replay, in transitions."""
    replay_shards: int = 0
    """With --workers: number of nodes that hold replay in shards; 0: the learner holds it."""
    learning_starts: int = 1_000
    """Environment steps before the first update."""
    train_every: int = 256
    """Environment steps between training phases."""
    n_step: int = 1
    """Steps of rewards summed before the value of the next state is added (n-step returns)."""
    prioritized: bool = False
    """Sample transitions in proportion to a power of their TD error (prioritised replay)."""
    alpha: float = 0.6
    """Prioritised replay: 0 samples uniformly, 1 in proportion to the error."""
    beta_start: float = 0.4
    """Prioritised replay: how much of the sampling bias is corrected at the start."""
    beta_end: float = 1.0
    """Prioritised replay: the same correction at the end of `horizon`; linear in between."""

    def __post_init__(self) -> None:
        check_number("gamma", self.gamma, high=1, low_too=True, high_too=True, example=0.99)
        for name in ("batch_size", "buffer_size", "n_step"):
            check_whole(name, getattr(self, name), high=MOST_ROWS)
        check_whole("train_every", self.train_every)
        check_whole("learning_starts", self.learning_starts, low=0)
        check_whole("replay_shards", self.replay_shards, low=0, high=MOST_SHARDS)
        for name in ("alpha", "beta_start", "beta_end"):
            check_number(name, getattr(self, name), high=1, low_too=True, high_too=True)
        check_flag("prioritized", self.prioritized)
        size = f"buffer_size={self.buffer_size}"
        if self.batch_size > self.buffer_size:
            fix = f"buffer_size={100 * self.batch_size}"
            refuse_together(f"batch_size={self.batch_size}", size, "no batch would ever fit", fix)
        if self.n_step >= self.buffer_size:
            why = "no sum of rewards would ever be complete"
            refuse_together(f"n_step={self.n_step}", size, why, "n_step=1")

    @property
    def unit(self) -> "Transition | Sequence":
        """The unit of one draw from replay."""
        from muster.data.units import Transition  # loads numba

        return Transition(self.n_step)

    @property
    def schema(self) -> "tuple[Column, ...]":
        """Extra columns of actors, filled by the agent's `write(rows)` and `complete(block)`."""
        return ()

    @abstractmethod
    def updates_per_step_exactly(self) -> Fraction:
        """Return the updates per environment step, as an exact fraction."""

    def updates_between(self, before: int, after: int) -> int:
        """Return the updates that are due between two counts of environment steps.

        Both counts start at the first step of the run, so no fraction of an update is lost.
        """
        ratio = self.updates_per_step_exactly()
        return math.floor(ratio * after) - math.floor(ratio * before)

    @abstractmethod
    def gentler(self) -> str:
        """Return options that make divergence less likely."""

    def default_workers(self, cores: int) -> int:
        """Return 0: one process is reproducible bit for bit; several processes are not."""
        return 0

    def check_run(self, workers: int | None, num_envs: int) -> None:
        """Raise OptionError for options that are impossible only in combination."""
        check_roles(workers, "an actor")
        envs, size = f"num_envs={num_envs}", f"buffer_size={self.buffer_size}"
        if num_envs > self.buffer_size:
            fix = f"buffer_size={100 * num_envs}"
            refuse_together(envs, size, "not one step of all environments would fit", fix)
        # Replay stores whole rows: one transition of each environment.
        parts = max(1, self.replay_shards)
        in_each = self.buffer_size // parts // num_envs * num_envs
        capacity = parts * in_each
        self._check_shards(workers or 0, num_envs, in_each)
        for name in ("batch_size", "learning_starts", "n_step"):
            if getattr(self, name) > capacity:
                refuse_together(
                    f"{name}={getattr(self, name)}",
                    size,
                    f"with {envs} the buffer holds {capacity}, so learning would never begin",
                    f"buffer_size={10 * max(getattr(self, name), num_envs)}",
                )

    def check_resume(self, parts: Mapping[str, Any], num_envs: int) -> None:
        """Raise OptionError for a change of shards; the code that loads replay checks the rest."""
        if "replay" not in parts:
            return
        saved = parts["replay"].get("shards")
        there = 0 if saved is None else len(saved)
        if there != self.replay_shards:
            raise OptionError(
                f"replay_shards={self.replay_shards} is not possible here",
                f"the checkpoint has replay {f'in {there} shards' if there else 'of one buffer'}, "
                "and a shard can load only what a shard of the same size saved",
                f"replay_shards={there}",
            )

    def rows_of_update(self, num_envs: int) -> int:
        """Return the number of samples in one update."""
        return self.batch_size

    def memory_needs(self, num_envs: int, obs_bytes: int, action_bytes: int) -> dict[str, int]:
        """Return the bytes of memory that options require, by the name of the option."""
        transition = obs_bytes + action_bytes + 5  # plus a reward and a flag
        updates = math.ceil(self.updates_per_step_exactly() * max(self.train_every, num_envs))
        pair = 2 * obs_bytes  # batches and data in transit also hold the next observation
        return {
            "buffer_size": self.buffer_size * transition,
            "batch_size": self.batch_size * pair,
            self.UPDATES: updates * self.batch_size * pair,
            "train_every": self.train_every * pair,
        }

    @staticmethod
    def lacks_replay(parts: Mapping[str, Any]) -> bool:
        """Whether a checkpoint lacks the replay data that learning needs."""
        return "replay" not in parts

    def _check_shards(self, workers: int, num_envs: int, in_each: int) -> None:
        """Raise OptionError for shards without a node, or with room for next to nothing."""
        if not self.replay_shards:
            return
        given = f"replay_shards={self.replay_shards}"
        if workers < 3 + self.replay_shards:
            refuse_together(
                f"workers={workers}",
                given,
                "a learner, an evaluator, an actor and each shard need one process each",
                f"workers={3 + self.replay_shards}",
            )
        if in_each <= max(num_envs, self.n_step):
            refuse_together(
                given,
                f"buffer_size={self.buffer_size}",
                f"each shard would hold {in_each} transitions",
                "replay_shards=1",
            )
