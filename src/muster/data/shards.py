"""Replay in several shards that draws like one buffer: which shard, where in it, which weight.

    Turns -> which shard the next fragment goes to
    positions -> locate(masses) -> shard and place in it -> the shard draws -> global_weights

The mass of a shard is the total that draws are proportional to: the sum of its p^alpha, or the
number of its transitions if replay is uniform. Laid end to end, the masses of all shards are the
sum tree of one buffer; a position in it belongs to one place in one shard. Pure arithmetic: knows
no nodes, no messages and no buffers.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from muster.data.checks import check_count
from muster.errors import OptionError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_BELOW_ONE = float(np.nextafter(1.0, 0.0))


class Turns:
    """Chooses the shard for the next fragment of one sender.

    n-step returns and sequences continue across the fragments of one turn, and end with it: the
    steps that follow are in another shard.

    Args:
        shards: Number of shards.
        first: The first shard.
        turn: Transitions that a shard gets, at least, before the next one.
    """

    def __init__(self, shards: int, first: int, turn: int) -> None:
        check_count("number of shards", shards, 1)
        check_count("turn", turn, 1)
        self._shards = shards
        self._shard = first % shards
        self._turn = turn
        self._in_turn = 0
        self._number = 0

    def next(self, size: int) -> tuple[int, int]:
        """Return the shard for `size` transitions, and the fragment's number, from 1."""
        if self._in_turn >= self._turn:
            self._shard = (self._shard + 1) % self._shards
            self._in_turn = 0
        self._in_turn += size
        self._number += 1
        return self._shard, self._number


def positions(count: int, rng: np.random.Generator, stratified: bool) -> Floats:
    """Draw `count` places in all of replay, float64 in [0, 1).

    Args:
        count: Number of places.
        rng: The generator.
        stratified: One from each of `count` equal parts, in order, as prioritised replay does;
            otherwise independent, as uniform replay does.
    """
    drawn = rng.random(count)
    return (np.arange(count) + drawn) / count if stratified else drawn


def locate(where: Floats, masses: Sequence[float] | Floats) -> tuple[Ints, Floats]:
    """Return the shard of each position [B], and the fraction of its mass there, in [0, 1).

    A shard whose mass is 0 is never chosen.

    Raises:
        OptionError: No shard has any mass, or a mass is negative or not finite.
    """
    mass = np.asarray(masses, np.float64)
    if mass.ndim != 1 or not (np.isfinite(mass) & (mass >= 0)).all() or not mass.any():
        raise OptionError(
            f"masses={mass.tolist()} are not possible",
            "each is a sum of priorities or a number of transitions, and one is above 0",
            "wait until a shard holds transitions",
        )
    ends = np.cumsum(mass)
    at = np.asarray(where, np.float64) * ends[-1]
    # Rounding may lead to the very end, beyond the last shard.
    shard = np.minimum(np.searchsorted(ends, at, side="right"), np.flatnonzero(mass)[-1])
    within = (at - (ends[shard] - mass[shard])) / mass[shard]
    return shard.astype(np.int64), np.clip(within, 0.0, _BELOW_ONE)


def global_weights(
    shard: Ints, chance: Floats, masses: Sequence[float] | Floats, beta: float
) -> NDArray[np.float32]:
    """Return the importance weights of a batch of all shards, float32 [B], the largest of them 1.

        P(i) = mass of its shard / all masses * chance(i)       w_i = (N P(i))^-beta / max_j w_j

    The number N of all transitions cancels out. The weights are exact even if a shard's mass has
    changed since the batch was divided: the probabilities at the time of the draw count.

    Args:
        shard: The shard of each row.
        chance: Its probability there when it was drawn: p^alpha divided by the shard's mass then.
        masses: The masses by which the batch was divided.
        beta: How far the weights correct the sampling bias.
    """
    probability = np.asarray(masses, np.float64)[shard] * chance
    weight: NDArray[np.float32] = ((probability.min() / probability) ** beta).astype(np.float32)
    return weight
