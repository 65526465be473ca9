"""`ShardedReplay`: replay on other nodes, with the interface of a `ReplayBuffer` for the learner.

    receive   offers of all shards, in order of arrival -> Insert, until the limiter has enough
    sample    locate(masses) -> Draw to each shard ... Drawn of all of them -> one Batch
    update_priorities -> kept, and sent along with the next order to each shard

Batches are requested in advance, so that the shards read while the learner learns. The replacement
of a killed shard starts empty: open requests to the dead one are repeated, to shards that have
data. Used by one thread only.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from muster.data.checks import check_count, check_fraction, check_many, check_reachable
from muster.data.feed import FragmentLog
from muster.data.limiter import SamplesPerInsert
from muster.data.obs import Array
from muster.data.shard import orders_channel, reports_channel
from muster.data.shard_book import Asked, ShardBook
from muster.data.shard_talk import ShardOrder, ShardReport
from muster.errors import OptionError
from muster.flow import Channel, gathering


@dataclass(slots=True, eq=False)
class _ShardTraffic:
    """The traffic between the learner and one shard."""

    orders: Channel
    is_ready: bool = False
    coming: int = 0
    """Transitions that the shard was told to store and has not reported."""


class ShardedReplay:
    """The learner's side of sharded replay; draws like one buffer with the same contents.

    Args:
        shards: Node ids, each with a `ReplayShard`.
        capacity: Transitions of all shards together.
        prioritized: As in the shards.
        beta: How far importance weights correct the sampling bias; `sample` can override it.
        min_size: Transitions in all shards to wait for before the first sample.
        seed: Seed of the generator that draws, for all shards.
        limiter: The ratio of samples to inserts, over all shards.
        prefetch: Batches (or groups of them, from `sample_many`) that are requested in advance.
        learner: This node, as the shards name it.
        session: Incarnation of this process.
        name: Distinguishes several replays.
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
        """Transitions ever stored, each once; including those of dead shards."""
        self.feed = FragmentLog()
        """Versions and notes of the fragments that were stored."""
        self._prefetch = prefetch
        self._session = session
        rng = np.random.Generator(np.random.PCG64(seed))
        self.book = ShardBook(len(shards), prioritized, rng)
        """The knowledge about the shards."""
        self._reports = reports_channel(name, learner)
        self._shards = [_ShardTraffic(orders_channel(name, shard)) for shard in shards]
        self._number_of = {shard: number for number, shard in enumerate(shards)}
        self._offers: deque[tuple[int, int]] = deque()
        self._asked: dict[int, Asked] = {}
        self._last_number = 0
        self._saved: dict[int, dict[str, Any]] = {}
        self._to_load: dict[int, dict[str, Any]] = {}
        for each in self._shards:
            each.orders.put(ShardOrder("hello"))

    def __len__(self) -> int:
        """Return the number of transitions that can be sampled."""
        return self.book.stored

    # ---- experience

    def receive(self, samples: int) -> bool:
        """Let shards store offered fragments, until `samples` transitions may be sampled.

        Like `ReplayBuffer.receive`: with a limiter, which counts all shards together, never more
        than that. A fragment is counted when its shard reports that it is stored.
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
        """Count the fragments that shards were told to store, if they can still report them."""
        with gathering():
            while self._coming() and self._on_message(wait=True):
                pass

    def _takes(self, samples: int) -> bool:
        """Accept as many offers as needed; return whether there is something to wait for."""
        missing = self._missing(samples)
        while missing > self._coming() and self._offers:
            number, size = self._offers.popleft()
            self._shards[number].coming += size
            self._order(number, "insert")
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
    ) -> Any:
        """Draw transitions, with replacement; like `ReplayBuffer.sample`.

        None while there are too few, and when the run is over.
        """
        if beta is not None:
            check_fraction("beta", beta)
        return self._next((batch_size,), self.beta if beta is None else beta)

    def sample_many(self, count: int, batch_size: int) -> Any:
        """Draw what `count` calls of `sample` would, as one Batch of leading shape [count, B].

        Only for uniform replay.
        """
        check_many(count, self.prioritized)
        return self._next((count, batch_size), self.beta)

    def _next(self, shape: tuple[int, ...], beta: float) -> Any:
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
                return self.book.batch(first, beta)
            if not self._on_message(wait=True):
                return None

    def _ask(self, shape: tuple[int, ...]) -> None:
        self._last_number += 1
        asked = self._asked[self._last_number] = self.book.ask(shape)
        for k in asked.rows:
            self._order(k, "draw", (self._last_number, asked.wanted(k)))

    def update_priorities(self, index: Array, td_error: Array) -> None:
        """Set the priorities of sampled transitions; like `ReplayBuffer.update_priorities`.

        Transitions that were overwritten since, or whose shard has died since, are skipped.
        """
        self.book.note_errors(index, td_error)

    # ---- saving

    def state_dict(self) -> dict[str, Any] | None:
        """Return the contents of all shards; None if they exit or do not answer in time.

        This also works after a signal that asks only the learner to finish (`on_signal`).
        """
        self._saved.clear()
        asked: dict[int, int] = {}
        with gathering():
            while len(self._saved) < len(self._shards):
                for number, shard in enumerate(self.book.shards):
                    ready = self._shards[number].is_ready
                    if ready and asked.get(number) != shard.generation:
                        asked[number] = shard.generation
                        self._order(number, "save")
                if not self._on_message(wait=True):
                    return None
        return {
            "shards": [self._saved.pop(number) for number in range(len(self._shards))],
            "rng": self.book.rng.bit_generator.state,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Let the shards begin with the contents of `state`; call it before any other request.

        Raises:
            OptionError: The state has another number of shards.
        """
        saved = state.get("shards")
        if not isinstance(saved, list) or len(saved) != len(self._shards):
            there = f"{len(saved)} shards" if isinstance(saved, list) else "one buffer"
            raise OptionError(
                f"the state is of {there}, this replay has {len(self._shards)}",
                "a shard can load only the state of a shard of the same size",
                "use the number of shards of the run that saved the state",
            )
        self.book.rng.bit_generator.state = state["rng"]
        self._to_load = dict(enumerate(saved))
        self.inserted = sum(each["inserted"] for each in saved)

    # ---- messages

    def _order(self, number: int, verb: str, given: Any = None) -> None:
        generation, learned = self.book.shards[number].generation, self.book.take_errors(number)
        self._shards[number].orders.put(ShardOrder(verb, generation, learned, given))

    def _on_message(self, wait: bool = False) -> bool:
        """Process the shards' reports; with `wait`, at least one, unless the run is over."""
        while wait or len(self._reports):
            report = self._reports.get_with_source()
            if report is None:
                return False
            wait = False
            number = self._number_of[report.sender]
            if report.value.verb == "hello":
                self._greet(number, report.incarnation)
            else:
                self._note(number, report.incarnation, report.value)
        return True

    def _greet(self, number: int, generation: int) -> None:
        """Begin with a shard that is new, or that replaces a dead one."""
        if not self.book.begin(number, generation):
            return
        self._shards[number].is_ready, self._shards[number].coming = False, 0
        self._saved.pop(number, None)
        self._offers = deque(each for each in self._offers if each[0] != number)
        self._asked = {n: asked for n, asked in self._asked.items() if not asked.lacks(number)}
        self._order(number, "begin", self._to_load.get(number))

    def _note(self, number: int, generation: int, report: ShardReport) -> None:
        shard = self._shards[number]
        if generation != self.book.shards[number].generation or report.session != self._session:
            return
        if report.verb == "ready":
            shard.is_ready = True
            self._to_load.pop(number, None)
        elif not shard.is_ready:
            return
        assert report.contents is not None
        self.book.saw(number, report.contents)
        if report.verb == "offer":
            self._offers.append((number, report.given))
        elif report.verb == "inserted":
            size, version, note = report.given
            shard.coming -= size
            self.inserted += size
            self.feed.add(version, note)
            if self.limiter is not None:
                self.limiter.note_insert(size)
        elif report.verb == "drawn":
            batch_number, batch, chance = report.given
            asked = self._asked.get(batch_number)
            if asked is not None:  # else another shard had died, or other batches are needed
                self.book.answer(asked, number, batch, chance)
        elif report.verb == "saved":
            self._saved[number] = report.given
