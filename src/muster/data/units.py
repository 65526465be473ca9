"""Units of a draw: a transition, a sequence of one episode, or an unroll of all environments.

Transition(n)                       replay   obs, n-step reward, observation after n steps
Sequence(length, overlap, burn_in)  replay   consecutive steps of one episode, padded and masked
Unroll(length)                      stream   consecutive steps of all environments, as they arrive
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from muster.data.checks import check_count, check_fraction
from muster.data.obs import Array
from muster.errors import OptionError


@dataclass(frozen=True, slots=True)
class Transition:
    """One step, and the rewards of up to `n` steps starting there."""

    n: int = 1

    def __post_init__(self) -> None:
        check_count("n_step", self.n, 1)

    @property
    def steps(self) -> int:
        """Steps that one draw may read."""
        return self.n


@dataclass(frozen=True, slots=True)
class Sequence:
    """Steps of one episode, for recurrent networks.

    Sequences begin every `length - overlap` steps of an episode, at its first step, and never
    extend into the next episode: the last sequences of an episode are shorter. For a sequence that
    begins within an episode, the first `burn_in` steps only update the recurrent state. The state
    at the start of an episode is known, so a sequence that begins there has no burn-in. `burn_in`
    is at most `overlap`, so every step is learnt from.
    """

    length: int
    overlap: int = 0
    burn_in: int = 0
    n: int = 1
    """Maximum number of rewards to sum for each step; never beyond the sequence."""
    mix: float = 0.9
    """Priority of a sequence: this share of the largest TD error of its steps, the rest of the mean
    error (Kapturowski et al. 2019, section 2.3)."""

    def __post_init__(self) -> None:
        check_count("length", self.length, 1)
        check_count("overlap", self.overlap, 0)
        check_count("burn_in", self.burn_in, 0)
        check_count("n_step", self.n, 1)
        check_fraction("mix", self.mix)
        if not self.burn_in <= self.overlap < self.length:
            raise OptionError(
                f"Sequence({self.length}, overlap={self.overlap}, burn_in={self.burn_in}) is not "
                "possible",
                "a sequence must be longer than its overlap, and steps that are in one sequence "
                "only must not be burn-in",
                f"Sequence({self.length}, overlap={self.length // 2}, burn_in={self.length // 2})",
            )

    @property
    def steps(self) -> int:
        """Steps that one draw may read."""
        return self.length

    @property
    def stride(self) -> int:
        """Steps between the starts of consecutive sequences."""
        return self.length - self.overlap

    def priority(self, td_error: Array, learnt: Array) -> NDArray[np.float64]:
        """Return one error [B] per sequence, from the errors [B, L] of the steps learnt from."""
        size = np.where(learnt, np.abs(np.asarray(td_error, np.float64)), 0.0)
        count = np.maximum(np.count_nonzero(learnt, axis=-1), 1)
        mixed: NDArray[np.float64] = self.mix * size.max(axis=-1) + (1 - self.mix) * (
            size.sum(axis=-1) / count
        )
        return mixed


@dataclass(frozen=True, slots=True)
class Unroll:
    """`length` steps of all environments of an actor, across episodes: a `StepBlock`."""

    length: int

    def __post_init__(self) -> None:
        check_count("length", self.length, 1)
