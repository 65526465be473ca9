"""`ShardedReplay`: replay that lies on other nodes, and looks like a `ReplayBuffer` to the learner.

    receive   offers of all shards, in the order they came -> Insert, until the limiter has enough
    sample    locate(masses) -> Draw to each shard ... Drawn of all of them -> one Batch
    update_priorities -> kept, and sent along with the next order to each shard

Batches are asked for ahead of time, so that the shards read while the learner learns. A shard that
was killed says hello again, empty: what it had been asked is asked anew, of whoever has something.
One thread uses it.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from muster.data.batch import Array, VersionedBatch
from muster.data.checks import check_count, check_fraction, check_reachable
from muster.data.feed import FragmentLog
from muster.data.limiter import SamplesPerInsert
from muster.data.priorities import check_errors, check_given_out
from muster.data.shard import orders_channel, reports_channel
from muster.data.shard_talk import (
    Announce,
    Begin,
    Contents,
    Draw,
    Drawn,
    Hello,
    Insert,
    Inserted,
    Learned,
    Offer,
    Order,
    Ready,
    Report,
    Save,
    Saved,
)
from muster.data.shards import Floats, Ints, global_weights, locate, positions
from muster.errors import OptionError
from muster.flow import Channel, gathering

NOBODY = -1
_EMPTY = Contents(0, 0, 0.0, 0.0)


@dataclass(slots=True, eq=False)
class _Shard:
    """What the learner knows of one shard."""

    orders: Channel
    generation: int = NOBODY
    is_ready: bool = False
    contents: Contents = field(default_factory=lambda: _EMPTY)
    before: int = 0
    """Transitions that processes before this one had stored. Numbers go on where theirs ended."""
    coming: int = 0
    """Transitions that it was told to store and has not reported."""
    errors: list[tuple[Ints, Floats]] = field(default_factory=list)
    """What to tell it of priorities: index, td_error."""


@dataclass(slots=True, eq=False)
class _Asked:
    """A batch that was asked for."""

    shape: tuple[int, ...]
    shard: Ints
    """Where each row comes from."""
    masses: Floats
    rows: dict[int, Ints]
    """Which rows each shard was asked for."""
    parts: dict[int, VersionedBatch] = field(default_factory=dict)
    chance: Floats | None = None

    @property
    def is_complete(self) -> bool:
        """Whether every shard has answered."""
        return len(self.parts) == len(self.rows)


class ShardedReplay:
    """The learner's face of replay in shards; draws what one buffer of all of it would draw.

    Args:
        shards: Node ids, on each a `ReplayShard`.
        capacity: Transitions of all shards together.
        prioritized: As the shards are.
        beta: How far importance weights correct for priorities; `sample` may be given another.
        min_size: Transitions in all shards to wait for before the first sample.
        seed: Of the generator that draws, for all shards.
        limiter: How many samples there are to be for each insert, over all shards.
        prefetch: Batches (or groups of them, from `sample_many`) that are asked for ahead.
        learner: This node, as the shards name it.
        session: This process's incarnation.
        name: Tells several replays apart.
    """

    def __init__(
        self,
        shards: Sequence[int],
        capacity: int,
        prioritized: bool = False,
        beta: float = 0.4,
        min_size: int = 0,
        seed: int = 0,
        limiter: SamplesPerInsert | None = None,
        prefetch: int = 2,
        learner: str | int = "role.learner",
        session: int = 0,
        name: str = "replay",
    ) -> None:
        check_count("number of shards", len(shards), 1)
        check_count("capacity", capacity, 1)
        check_count("prefetch", prefetch, 0)
        check_fraction("beta", beta)
        check_reachable("min_size", min_size, capacity)
        self.capacity = capacity
        self.prioritized = prioritized
        self.beta = beta
        self.min_size = min_size
        self.limiter = limiter
        self.inserted = 0
        """Transitions ever stored, each once; those of shards that have died count too."""
        self.feed = FragmentLog()
        """What is to be known of the fragments that were stored."""
        self._prefetch = prefetch
        self._session = session
        self._rng = np.random.Generator(np.random.PCG64(seed))
        self._reports = reports_channel(name, learner)
        self._shards = [_Shard(orders_channel(name, shard)) for shard in shards]
        self._number_of = {shard: number for number, shard in enumerate(shards)}
        self._offers: deque[tuple[int, int]] = deque()
        self._asked: dict[int, _Asked] = {}
        self._last_number = 0
        self._largest = 0.0
        self._saved: dict[int, dict[str, Any]] = {}
        self._to_load: dict[int, dict[str, Any]] = {}
        for each in self._shards:
            each.orders.put(Announce(name))

    def __len__(self) -> int:
        """Return the number of transitions that can be sampled."""
        return sum(shard.contents.stored for shard in self._shards)

    # ---- experience

    def receive(self, samples: int) -> bool:
        """Have shards store what was offered, until so many transitions may be sampled.

        As `ReplayBuffer.receive`: never more than that where there is a limiter, which counts all
        shards together. A fragment is counted when its shard says that it is stored.
        """
        self._on_message()
        while self._to_load or self._takes(samples):
            if not self._on_message(wait=True):
                self._settle()
                return False
        if self.limiter is not None:
            self.limiter.note_sample(samples)
        return True

    def _settle(self) -> None:
        """Count what shards were told to store, if they still can say so."""
        with gathering():
            while self._coming() and self._on_message(wait=True):
                pass

    def _takes(self, samples: int) -> bool:
        """Accept what is wanted of what was offered; whether there is something to wait for."""
        missing = self._missing(samples)
        while missing > self._coming() and self._offers:
            number, size = self._offers.popleft()
            shard = self._shards[number]
            shard.coming += size
            self._order(number, Insert(shard.generation, self._learned(shard)))
        return missing > 0 or self._coming() > 0

    def _missing(self, samples: int) -> int:
        if self.limiter is not None:
            return self.limiter.missing(samples)
        wanted = max(self.min_size - len(self), 0)
        return max(wanted, sum(size for _, size in self._offers) + self._coming())

    def _coming(self) -> int:
        return sum(shard.coming for shard in self._shards)

    # ---- batches

    def sample(
        self, batch_size: int, train_iter: int | None = None, *, beta: float | None = None
    ) -> VersionedBatch | None:
        """Draw transitions, with replacement; as `ReplayBuffer.sample`.

        None while there are too few, and when the run is over.
        """
        if beta is not None:
            check_fraction("beta", beta)
        return self._next((batch_size,), self.beta if beta is None else beta)

    def sample_many(self, count: int, batch_size: int) -> VersionedBatch | None:
        """Draw what `count` calls of `sample` would, as one Batch of leading shape [count, B].

        Only where replay is uniform.
        """
        if self.prioritized:
            raise OptionError(
                "sample_many() of a prioritized buffer is not possible",
                "each batch changes the priorities that the next one is drawn by",
                "call sample() and update_priorities() in turn",
            )
        check_count("count", count, 1)
        return self._next((count, batch_size), self.beta)

    def _next(self, shape: tuple[int, ...], beta: float) -> VersionedBatch | None:
        check_count("batch_size", shape[-1], 1)
        check_reachable("batch_size", shape[-1], self.capacity)
        self._on_message()
        while True:
            if len(self) < max(shape[-1], self.min_size):
                self._asked.clear()
                return None
            for number in [n for n, each in self._asked.items() if each.shape != shape]:
                del self._asked[number]
            while len(self._asked) <= self._prefetch:
                self._ask(shape)
            number, first = next(iter(self._asked.items()))
            if first.is_complete:
                del self._asked[number]
                return self._batch(first, beta)
            if not self._on_message(wait=True):
                return None

    def _ask(self, shape: tuple[int, ...]) -> None:
        masses = np.array([shard.contents.mass for shard in self._shards])
        where = positions(int(np.prod(shape)), self._rng, stratified=self.prioritized)
        shard, within = locate(where, masses)
        rows = {int(k): np.flatnonzero(shard == k) for k in np.unique(shard)}
        self._last_number += 1
        chance = np.empty(shard.size) if self.prioritized else None
        self._asked[self._last_number] = _Asked(shape, shard, masses, rows, chance=chance)
        for k, wanted in rows.items():
            known = self._shards[k]
            order = Draw(known.generation, self._learned(known), self._last_number, within[wanted])
            self._order(k, order)

    def _batch(self, asked: _Asked, beta: float) -> VersionedBatch:
        batch = VersionedBatch.gather([(asked.rows[k], part) for k, part in asked.parts.items()])
        if asked.chance is not None:
            batch.weight = global_weights(asked.shard, asked.chance, asked.masses, beta)
        return batch.reshape(asked.shape)

    def update_priorities(self, index: Array, td_error: Array) -> None:
        """Set the priorities of sampled transitions; as `ReplayBuffer.update_priorities`.

        Those overwritten since, and those of a shard that has died since, are passed over.
        """
        if not self.prioritized:
            return
        ids, size = check_errors(index, td_error)
        ids, size = ids.ravel(), size.ravel()
        for number, shard in enumerate(self._shards):
            mine = ids % len(self._shards) == number
            own, errors = ids[mine] // len(self._shards) - shard.before, size[mine]
            alive = own >= 0
            check_given_out(own[alive], shard.contents.inserted)
            if alive.any():
                shard.errors.append((own[alive], errors[alive]))

    def _learned(self, shard: _Shard) -> Learned | None:
        """Take what is to be said about priorities along."""
        if not self.prioritized:
            return None
        index = [each[0] for each in shard.errors] or [np.empty(0, np.int64)]
        errors = [each[1] for each in shard.errors] or [np.empty(0)]
        shard.errors.clear()
        return Learned(np.concatenate(index), np.concatenate(errors), self._largest)

    # ---- saving

    def state_dict(self) -> dict[str, Any] | None:
        """Return what all shards hold; None if they end, or do not answer, before they have told.

        After a signal, too, where it asks the learner alone to finish (`on_signal`).
        """
        self._saved.clear()
        asked: dict[int, int] = {}
        with gathering():
            while len(self._saved) < len(self._shards):
                for number, shard in enumerate(self._shards):
                    if shard.is_ready and asked.get(number) != shard.generation:
                        asked[number] = shard.generation
                        self._order(number, Save(shard.generation, self._learned(shard)))
                if not self._on_message(wait=True):
                    return None
        return {
            "shards": [self._saved.pop(number) for number in range(len(self._shards))],
            "rng": self._rng.bit_generator.state,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Have the shards begin with what `state` holds; before anything else is asked of them.

        Raises:
            OptionError: It is of another number of shards.
        """
        saved = state.get("shards")
        if not isinstance(saved, list) or len(saved) != len(self._shards):
            there = f"{len(saved)} shards" if isinstance(saved, list) else "one buffer"
            raise OptionError(
                f"the state is of {there}, this replay has {len(self._shards)}",
                "each shard goes on only with what a shard like it has stored",
                "use the number of shards of the run that saved the state",
            )
        self._rng.bit_generator.state = state["rng"]
        self._to_load = dict(enumerate(saved))
        self.inserted = sum(each["inserted"] for each in saved)

    # ---- messages

    def _order(self, number: int, order: Order) -> None:
        self._shards[number].orders.put(order)

    def _on_message(self, wait: bool = False) -> bool:
        """Take in what the shards have said; with `wait` at least one report, unless it is over."""
        while wait or len(self._reports):
            report = self._reports.get_with_source()
            if report is None:
                return False
            wait = False
            number = self._number_of[report.sender]
            if isinstance(report.value, Hello):
                self._greet(number, report.incarnation)
            else:
                self._note(number, report.incarnation, report.value)
        return True

    def _greet(self, number: int, generation: int) -> None:
        """Begin with a shard that is there for the first time, or in place of a dead one."""
        shard = self._shards[number]
        if generation <= shard.generation:
            return
        shard.before += shard.contents.inserted
        shard.generation, shard.is_ready = generation, False
        shard.contents, shard.coming = _EMPTY, 0
        shard.errors.clear()
        self._saved.pop(number, None)
        self._offers = deque(each for each in self._offers if each[0] != number)
        for lost in [
            asked
            for asked, each in self._asked.items()
            if number in each.rows and number not in each.parts
        ]:
            del self._asked[lost]
        self._order(number, Begin(generation, self._to_load.get(number)))

    def _note(self, number: int, generation: int, report: Report) -> None:
        shard = self._shards[number]
        if generation != shard.generation or report.session != self._session:
            return
        if isinstance(report, Ready):
            shard.is_ready = True
            self._to_load.pop(number, None)
        elif not shard.is_ready:
            return
        if isinstance(report, Ready | Inserted | Drawn):
            shard.contents = report.contents
            self._largest = max(self._largest, report.contents.largest)
        if isinstance(report, Offer):
            self._offers.append((number, report.size))
        elif isinstance(report, Inserted):
            shard.coming -= report.size
            self.inserted += report.size
            self.feed.add(report.version, report.note)
            if self.limiter is not None:
                self.limiter.note_insert(report.size)
        elif isinstance(report, Drawn):
            self._note_drawn(number, report)
        elif isinstance(report, Saved):
            self._saved[number] = report.state

    def _note_drawn(self, number: int, report: Drawn) -> None:
        asked = self._asked.get(report.number)
        if asked is None:  # another shard had died, or the learner wants other batches by now
            return
        index: NDArray[np.int64] = report.batch.index
        report.batch.index = (index + self._shards[number].before) * len(self._shards) + number
        asked.parts[number] = report.batch
        if asked.chance is not None and report.chance is not None:
            asked.chance[asked.rows[number]] = report.chance
