"""How R2D2 learns, checked when it is made.

A file of its own, without torch: what is wrong with an option is said before that is loaded.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from muster.algos.apex_config import ApexConfig
from muster.algos.options import (
    check_choice,
    check_flag,
    check_number,
    check_whole,
    refuse_together,
)

if TYPE_CHECKING:
    from muster.data.schema import Column
    from muster.data.units import Sequence

Cell = Literal["lstm", "gru"]
_PARTS_OF_STATE = {"lstm": 2, "gru": 1}


@dataclass(frozen=True)
class R2D2Config(ApexConfig):
    """How R2D2 learns: the numbers of the paper, in sizes for one machine."""

    NAME = "R2D2"
    FIXED_ON_RESUME: ClassVar[frozenset[str]] = ApexConfig.FIXED_ON_RESUME | {
        "sequence",
        "overlap",
        "burn_in",
        "n_step",
        "priority_mix",
    }

    gamma: float = 0.997
    """Discount per environment step."""
    batch_size: int = 64
    """Sequences per update."""
    buffer_size: int = 200_000
    """Environment steps that replay holds."""
    train_every: int = 1_024
    """Environment steps from one phase of updates to the next."""
    n_step: int = 5
    """Steps whose rewards are summed before the value of what follows is added."""
    prioritized: bool = True
    """Draw sequences by the size of their TD errors, which actors compute first."""
    alpha: float = 0.9
    """Prioritised replay: 0 draws all alike, 1 in proportion to the error."""
    beta_start: float = 0.0
    """Prioritised replay: how much of the drawing's bias is corrected at first; 0 for nothing."""
    beta_end: float = 0.0
    """The same after `horizon` environment steps; linear in between."""
    huber: bool = False
    """Errors beyond 1 count linearly; else the loss is half the squared error."""
    hidden: tuple[int, ...] = (128, 128)
    """Width of each layer after the encoder of observations; the last one is what remembers."""
    model: Cell = "lstm"
    """What remembers: lstm or gru."""
    dueling: bool = True
    """Heads for value and advantages, both on what remembers."""
    sequence: int = 80
    """Steps of a sequence, at most: those of one episode."""
    overlap: int = 40
    """Steps that a sequence has in common with the next one of its episode."""
    burn_in: int = 40
    """First steps of a sequence that only bring its state up to date, unless an episode begins
    with it."""
    priority_mix: float = 0.9
    """A sequence's priority: this part of its largest TD error, the rest of the mean."""
    rescale: bool = True
    """Learn values as h(x) = sign(x) (sqrt(|x| + 1) - 1) + rescale_eps x."""
    rescale_eps: float = 1e-3
    """How much of a value h keeps as it is."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("sequence", self.sequence, high=100_000)
        check_whole("overlap", self.overlap, low=0)
        check_whole("burn_in", self.burn_in, low=0)
        check_number("priority_mix", self.priority_mix, high=1, low_too=True, high_too=True)
        check_flag("rescale", self.rescale)
        check_number("rescale_eps", self.rescale_eps, high=1, high_too=True, example=1e-3)
        if self.overlap >= self.sequence:
            why = "a sequence begins further on than the one before it"
            fix = f"overlap={self.sequence // 2}"
            refuse_together(f"overlap={self.overlap}", f"sequence={self.sequence}", why, fix)
        if self.burn_in > self.overlap:
            why = "some steps would be burn-in in every sequence, and never learnt from"
            fix = f"burn_in={self.overlap}"
            refuse_together(f"burn_in={self.burn_in}", f"overlap={self.overlap}", why, fix)

    def _check_network(self) -> None:
        check_choice("model", self.model, Cell)
        if not self.hidden:
            why = "the last hidden layer is what remembers"
            refuse_together(f"model={self.model}", "hidden=()", why, "hidden=(64,)")

    @property
    def unit(self) -> "Sequence":
        """What one draw from replay is."""
        from muster.data.units import Sequence  # with numba: reading options needs none

        return Sequence(self.sequence, self.overlap, self.burn_in, self.n_step, self.priority_mix)

    @property
    def state_width(self) -> int:
        """Numbers that the network remembers of an environment."""
        return _PARTS_OF_STATE[self.model] * self.hidden[-1]

    @property
    def schema(self) -> "tuple[Column, ...]":
        """What actors write besides: errors, and what the network remembered before each step."""
        import numpy as np

        from muster.data.schema import STATE, Column

        return (*super().schema, Column(STATE, np.dtype(np.float32), (self.state_width,)))

    def check_run(self, workers: int | None, num_envs: int) -> None:
        """Raise OptionError for what only these together make impossible."""
        super().check_run(workers, num_envs)
        rows = self.buffer_size // max(1, self.replay_shards) // num_envs
        if rows < 2 * self.sequence:
            refuse_together(
                f"sequence={self.sequence}",
                f"buffer_size={self.buffer_size}",
                f"replay would hold {rows} steps of each of {num_envs} environments",
                f"buffer_size={10 * self.sequence * num_envs * max(1, self.replay_shards)}",
            )

    def rows_of_update(self, num_envs: int) -> int:
        """Return the samples that one update learns from: steps, of all its sequences."""
        return self.batch_size * self.sequence

    def memory_needs(self, num_envs: int, obs_bytes: int, action_bytes: int) -> dict[str, int]:
        """Return the bytes that options ask for, by the name of the option."""
        step = obs_bytes + action_bytes + 4 * self.state_width
        needs = super().memory_needs(num_envs, step, action_bytes)
        batch = self.batch_size * self.sequence * step
        return {**needs, "batch_size": batch, self.UPDATES: self.updates_per_train * batch}
