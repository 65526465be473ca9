"""What one draw expands into: a transition, a sequence of an episode, or an unroll of all.

Transition(n)                       replay   obs, n-step reward, what the n steps led to
Sequence(length, overlap, burn_in)  replay   consecutive steps of one episode, padded and masked
Unroll(length)                      stream   consecutive steps of all environments, as they come
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from muster.data.checks import check_count, check_fraction
from muster.data.obs import Array
from muster.errors import OptionError


@dataclass(frozen=True, slots=True)
class Transition:
    """One step, and the rewards of up to `n` steps from it on."""

    n: int = 1

    def __post_init__(self) -> None:
        check_count("n_step", self.n, 1)

    @property
    def steps(self) -> int:
        """Steps that one draw may read."""
        return self.n


@dataclass(frozen=True, slots=True)
class Sequence:
    """Steps of one episode, for networks that remember.

    Sequences begin every `length - overlap` steps of an episode, its first step included, and never
    reach into the next one: the last ones of an episode are shorter. One that begins in the middle
    of an episode is only unrolled for its first `burn_in` steps; the state at an episode's begin is
    known, so a sequence that begins there has none. As burn_in is at most `overlap`, every step is
    learnt from.
    """

    length: int
    overlap: int = 0
    burn_in: int = 0
    n: int = 1
    """Rewards to sum up for each step, at most; never beyond the sequence."""
    mix: float = 0.9
    """A sequence's priority: this part of the largest TD error of its steps, the rest of the mean
    (Kapturowski et al. 2019, section 2.3)."""

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
                "sequences begin further on than they overlap, and steps that no sequence but one "
                "has must not be burn-in",
                f"Sequence({self.length}, overlap={self.length // 2}, burn_in={self.length // 2})",
            )

    @property
    def steps(self) -> int:
        """Steps that one draw may read."""
        return self.length

    @property
    def stride(self) -> int:
        """Steps from the begin of one sequence to that of the next."""
        return self.length - self.overlap

    def priority(self, td_error: Array, learnt: Array) -> NDArray[np.float64]:
        """Return one error [B] for each sequence, of the errors [B, L] of the steps learnt from."""
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
