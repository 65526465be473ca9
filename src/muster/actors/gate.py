"""`Gate`: the counts of one replay buffer, and which clients have to wait. Has its own actor.

    worker:  reserve(n) -> store in a shard -> confirmed with the next reserve
    learner: take(n)    -> sample from the shards

Steps count as inserted when they are reserved, so that many workers together cannot exceed the
limit; they count as confirmed when a shard has stored them. A restarted worker asks how many of its
steps are confirmed, and continues from there.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from muster.data import SamplesPerInsert


class Gate:
    """Decides which clients may store and sample. Methods do not overlap, except while waiting.

    Args:
        min_size: Transitions needed before the first sample.
        ratio: Samples per insert; None for no limit.
        error_buffer: How far samples may be ahead or behind, in samples.
    """

    def __init__(self, min_size: int, ratio: float | None, error_buffer: float | None) -> None:
        self._min_size = min_size
        self._limiter = None
        if ratio is not None:
            room = error_buffer or 1_000 * max(1.0, ratio)
            self._limiter = SamplesPerInsert(ratio, min_size, room)
        self._inserted = 0
        self._sampled = 0
        self._reserved: dict[str, int] = {}
        self._confirmed: dict[str, int] = {}
        self._generations: dict[int, int] = {}
        self._refill = 0
        self._lost_shards = 0
        self._sealed = False
        self._changed = asyncio.Condition()

    async def join(self, client: str) -> int:
        """Return the number of confirmed steps of this client; discard its reservations."""
        self._insert(-self._reserved.pop(client, 0))
        await self._tell()
        return self._confirmed.get(client, 0)

    async def reserve(self, client: str, count: int, confirmed: int) -> int | None:
        """Wait until `count` steps may be stored; return all inserts so far. None once sealed."""
        self._confirm(client, confirmed)
        await self._wait(lambda: self._sealed or self._may_insert(count), None)
        if self._sealed:
            return None
        self._refill = max(0, self._refill - count)
        self._reserved[client] = self._reserved.get(client, 0) + count
        self._insert(count)
        await self._tell()
        return self._inserted

    async def confirm(self, client: str, confirmed: int) -> int:
        """Record that a shard has stored this many more steps; return the client's total."""
        self._confirm(client, confirmed)
        return self._confirmed.get(client, 0)

    async def take(self, count: int, seconds: float | None) -> bool | None:
        """Wait until `count` may be sampled. False: not in time. None: never again."""

        def decided() -> bool:
            return self._may_sample(count) or self._sealed

        if not await self._wait(decided, seconds):
            return False
        if self._sealed and not self._is_due(count):
            return None
        self._sample(count)
        await self._tell()
        return True

    async def give_back(self, count: int) -> None:
        """Undo a `take`."""
        self._sample(-count)
        await self._tell()

    async def saw(self, shard: int, generation: int) -> None:
        """Record the generation of a shard that a client has seen: a new generation is empty.

        Its content is lost but the counts are not, and could block the workers that refill it.
        """
        if self._generations.get(shard, generation) < generation:
            self._lost_shards += 1
            self._refill = self._min_size
        if self._generations.get(shard, 0) < generation:
            self._generations[shard] = generation
            await self._tell()

    async def seal(self) -> None:
        """Accept no more steps."""
        self._sealed = True
        await self._tell()

    async def counts(self) -> dict[str, Any]:
        """Return the counts."""
        return {
            "inserted": self._inserted,
            "confirmed": sum(self._confirmed.values()),
            "sampled": self._sampled,
            "lost_shards": self._lost_shards,
        }

    def _may_insert(self, count: int) -> bool:
        return self._refill > 0 or self._limiter is None or self._limiter.may_insert(count)

    def _may_sample(self, count: int) -> bool:
        if self._limiter is not None:
            return self._limiter.may_sample(count)
        return self._inserted >= self._min_size

    def _is_due(self, count: int) -> bool:
        """Whether this many samples are still due for the inserted steps."""
        limiter = self._limiter
        if limiter is None or self._inserted < self._min_size:
            return False
        return (limiter.inserts - limiter.min_size) * limiter.ratio - limiter.samples >= count

    def _insert(self, count: int) -> None:
        self._inserted += count
        if self._limiter is not None:
            self._limiter.note_insert(count)

    def _sample(self, count: int) -> None:
        self._sampled += count
        if self._limiter is not None:
            self._limiter.note_sample(count)

    def _confirm(self, client: str, count: int) -> None:
        if count:
            self._confirmed[client] = self._confirmed.get(client, 0) + count
            self._reserved[client] = max(0, self._reserved.get(client, 0) - count)

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _wait(self, until: Callable[[], bool], seconds: float | None) -> bool:
        async with self._changed:
            if until():
                return True
            if seconds == 0:
                return False
            try:
                await asyncio.wait_for(self._changed.wait_for(until), seconds)
            except TimeoutError:
                return until()
            return True
