"""Options of Q-learners whose network may be recurrent and then learns from sequences.

The network is recurrent if `model` is lstm or gru. Does not import torch.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from muster.algos.options import check_flag, check_number, check_whole, refuse_together

if TYPE_CHECKING:
    from muster.algos.q_config import QLearningConfig as _Options
    from muster.data.schema import Column
    from muster.data.units import Sequence, Transition
else:
    # No base class: its fields would come before those of the Q-learner beside it.
    _Options = object

PARTS_OF_STATE = {"lstm": 2, "gru": 1}
"""The recurrent layers, and how many vectors of the layer's width form their state."""


@dataclass(frozen=True)
class SequenceConfig(_Options):
    """Must come before the `QLearningConfig` among an algorithm's base classes."""

    SEQUENCE_OPTIONS: ClassVar[frozenset[str]] = frozenset(
        {"sequence", "overlap", "burn_in", "n_step", "priority_mix", "last_action"}
    )
    """Options that define replay and the recurrent network: fixed on resume."""

    sequence: int = 80
    """Maximum steps of a sequence; a sequence never spans two episodes."""
    overlap: int = 40
    """Steps that a sequence shares with the next one of its episode."""
    burn_in: int = 40
    """First steps of a sequence that only update the recurrent state; none if an episode begins
    with the sequence."""
    priority_mix: float = 0.9
    """Priority of a sequence: this share of its largest TD error, the rest of the mean error."""
    last_action: bool = True
    """Feed the previous action to a recurrent network, too."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("sequence", self.sequence, high=100_000)
        check_whole("overlap", self.overlap, low=0)
        check_whole("burn_in", self.burn_in, low=0)
        check_number("priority_mix", self.priority_mix, high=1, low_too=True, high_too=True)
        check_flag("last_action", self.last_action)
        if self.overlap >= self.sequence:
            why = "each sequence must begin later than the previous one"
            fix = f"overlap={self.sequence // 2}"
            refuse_together(f"overlap={self.overlap}", f"sequence={self.sequence}", why, fix)
        if self.burn_in > self.overlap:
            why = "some steps would be burn-in in every sequence, and never learnt from"
            fix = f"burn_in={self.overlap}"
            refuse_together(f"burn_in={self.burn_in}", f"overlap={self.overlap}", why, fix)

    @property
    def remembers(self) -> bool:
        """Whether the network is recurrent, and one draw from replay is a sequence."""
        return isinstance(self.model, str) and self.model in PARTS_OF_STATE

    def _check_network(self) -> None:
        if not self.remembers:
            super()._check_network()
        elif not self.hidden:
            why = "the last hidden layer is the recurrent one"
            refuse_together(f"model={self.model}", "hidden=()", why, "hidden=(64,)")

    @property
    def unit(self) -> "Transition | Sequence":
        """The unit of one draw from replay."""
        if not self.remembers:
            return super().unit
        from muster.data.units import Sequence  # loads numba

        return Sequence(self.sequence, self.overlap, self.burn_in, self.n_step, self.priority_mix)

    @property
    def state_width(self) -> int:
        """Numbers in the recurrent state of one environment, including its last action."""
        return PARTS_OF_STATE[str(self.model)] * self.hidden[-1] + self.last_action

    @property
    def schema(self) -> "tuple[Column, ...]":
        """Extra columns that actors write, such as the recurrent state before each step."""
        if not self.remembers:
            return super().schema
        import numpy as np

        from muster.data.schema import STATE, Column

        return (*super().schema, Column(STATE, np.dtype(np.float32), (self.state_width,)))

    def check_run(self, workers: int | None, num_envs: int) -> None:
        """Raise OptionError for options that are impossible only in combination."""
        super().check_run(workers, num_envs)
        rows = self.buffer_size // max(1, self.replay_shards) // num_envs
        if self.remembers and rows < 2 * self.sequence:
            refuse_together(
                f"sequence={self.sequence}",
                f"buffer_size={self.buffer_size}",
                f"replay would hold {rows} steps of each of {num_envs} environments",
                f"buffer_size={10 * self.sequence * num_envs * max(1, self.replay_shards)}",
            )

    def rows_of_update(self, num_envs: int) -> int:
        """Return the number of samples in one update: the steps of all its sequences."""
        return self.batch_size * (self.sequence if self.remembers else 1)

    def memory_needs(self, num_envs: int, obs_bytes: int, action_bytes: int) -> dict[str, int]:
        """Return the bytes of memory that options require, by the name of the option."""
        if not self.remembers:
            return super().memory_needs(num_envs, obs_bytes, action_bytes)
        step = obs_bytes + action_bytes + 4 * self.state_width
        needs = super().memory_needs(num_envs, step, action_bytes)
        batch = self.batch_size * self.sequence * step
        return {**needs, "batch_size": batch, self.UPDATES: self.updates_per_train * batch}
