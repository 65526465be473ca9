"""`ReplayBuffer`: experience in one or several shards, which any process can fill and sample.

    store(fragment) -> gate (admits) -> one shard; a few calls pending, further ones wait
    sample_batch(n) -> gate (admits) -> masses of all shards -> each draws its part -> one batch
    update_priorities(batch, td_error) -> the shards of the batch, if they are still alive

A shard that dies is restarted empty, and the others continue. `muster.data` (`ShardState`,
`ShardBook`) defines what a shard is, how a batch is split, and its weights; this module carries the
calls.
"""

import time
import uuid
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from numpy.typing import NDArray

from muster.actors.block import Block
from muster.actors.calls import Call, failure
from muster.actors.errors import ReplayEmptyError
from muster.actors.gate import Gate
from muster.actors.ray_here import check_room, need_ray, needs_of
from muster.actors.sampled_batch import SampledBatch, ShardOfSamples
from muster.data import VERSION, StepBlock
from muster.data import ReplayBuffer as Rows
from muster.data.block import block_of
from muster.data.checks import check_count, check_reachable
from muster.data.shard_book import ShardBook
from muster.data.shard_state import Answer
from muster.data.shards import Turns
from muster.data.steps import FragmentSource
from muster.seeding import generator

_PATIENCE = 30.0
"""Seconds for which shards are asked again while none of them answers."""

_PAUSE = 0.05
"""Seconds before a shard that is unreachable or empty is asked again."""


@dataclass
class _Sent:
    """A fragment on its way to a shard."""

    ref: Any
    shard: int
    arguments: tuple[Any, ...]
    count: int


class ReplayBuffer:
    """Replay on a Ray cluster. A handle: copies in other processes are clients of the same shards.

    Args:
        obs_space: Of one environment: Box (images stay uint8), Discrete, or a Dict of those.
        action_space: Of one environment: Discrete, MultiDiscrete or Box.
        size: Capacity in transitions, over all shards; then the oldest are overwritten.
        shards: Number of actors that hold them.
        num_envs: Environments that step together in each worker.
        n_step: Maximum number of rewards to sum up.
        gamma: Discount per step.
        prioritized: Draw by priority instead of uniformly.
        alpha: Exponent of the priorities.
        beta: Exponent of the importance weights, which correct for the priorities.
        min_size: Transitions needed before the first sample.
        samples_per_insert: Samples for each transition, kept within `error_buffer` by making the
            side that is ahead wait. None: no side waits.
        error_buffer: How far samples may be ahead or behind, in samples.
        in_flight: Maximum number of pending calls of one client.
        turn: Transitions that a client stores in one shard before it switches to the next; n-step
            returns end with a turn. Default: 1,024, or a quarter of a shard's capacity if that is
            less.
        max_restarts: How many times a shard may be restarted.
        seed: Seed of the generators that draw.
        **options: Options of Ray for each shard, such as `resources`.
    """

    def __init__(
        self,
        obs_space: object,
        action_space: object,
        size: int,
        *,
        shards: int = 1,
        num_envs: int = 1,
        n_step: int = 1,
        gamma: float = 0.99,
        prioritized: bool = False,
        alpha: float = 0.6,
        beta: float = 0.4,
        min_size: int = 1,
        samples_per_insert: float | None = None,
        error_buffer: float | None = None,
        in_flight: int = 4,
        turn: int | None = None,
        max_restarts: int = 3,
        seed: int = 0,
        **options: Any,
    ) -> None:
        for name, value in {
            "shards": shards,
            "in_flight": in_flight,
            "min_size": min_size,
        }.items():
            check_count(name, value, 1)
        check_reachable("min_size", min_size, size)
        self.prioritized = prioritized
        self.beta = beta
        self._in_flight = in_flight
        self._turn = min(1_024, max(1, size // shards // 4)) if turn is None else turn
        self._seed = seed
        settings = {"num_cpus": 0, "max_restarts": max_restarts, **options}
        check_room({f"replay shard {k}": needs_of(settings) for k in range(shards)})
        rows: dict[str, Any] = {
            "capacity": -(-size // shards),
            "obs_space": obs_space,
            "action_space": action_space,
            "num_envs": num_envs,
            "n_step": n_step,
            "gamma": gamma,
            "prioritized": prioritized,
            "alpha": alpha,
            "columns": (VERSION,),
        }
        make = {"make_buffer": partial(Rows, **rows)}
        self._shards = [
            Block(f"replay shard {k}", ShardOfSamples, make, settings) for k in range(shards)
        ]
        limits = {
            "min_size": min_size,
            "ratio": samples_per_insert,
            "error_buffer": error_buffer,
        }
        self._gate = Block("replay gate", Gate, limits, {"num_cpus": 0})
        self._be_client(uuid.uuid4().hex)

    def __getstate__(self) -> dict[str, Any]:
        names = ("prioritized", "beta", "_in_flight", "_turn", "_seed", "_shards", "_gate")
        return {name: getattr(self, name) for name in names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._be_client(uuid.uuid4().hex)

    def _be_client(self, name: str) -> None:
        self._me = name
        rng = generator(self._seed, "client", name)
        self._book = ShardBook(len(self._shards), self.prioritized, rng)
        self._life = uuid.uuid4().hex
        first = int(rng.integers(len(self._shards)))
        self._turns = Turns(len(self._shards), first, self._turn)
        self._confirmed = 0
        self._fragments: deque[_Sent] = deque()
        self._updates: deque[tuple[str, Any]] = deque()
        self._answered = 0.0  # when a shard last answered

    def join(self, name: str) -> int:
        """Become the client of this name, and return the number of steps that it has stored.

        For a worker that may be restarted. Steps of its previous incarnation that were still on
        their way count as not stored.
        """
        self._be_client(name)
        return int(self._ask("join", name))

    def store(self, batch: StepBlock | Mapping[str, Any], version: int = 0) -> int | None:
        """Store steps [T, N, ...] of one worker, and wait until there is room for them.

        Args:
            batch: As `Collector.collect` returns it, or a dict of the same fields.
            version: Version of the weights that chose the actions.

        Returns:
            Steps stored so far by all workers; None if the buffer is sealed.

        Raises:
            BlockError: A shard rejected a fragment of an earlier call, or no shard is left.
        """
        data = batch if isinstance(batch, StepBlock) else block_of(batch)
        confirmed, self._confirmed = self._confirmed, 0
        total = self._ask("reserve", self._me, len(data), confirmed)
        if total is None:
            return None
        while len(self._fragments) >= self._in_flight:
            self._settle(self._fragments.popleft())
        shard, number = self._turns.next(len(data))
        arguments = (data, version, FragmentSource(self._life, number))
        ref = self._shards[shard].actor.store.remote(*arguments)
        self._fragments.append(_Sent(ref, shard, arguments, len(data)))
        return int(total)

    def flush(self) -> int:
        """Wait until all steps of this client have been stored; return their number."""
        while self._fragments:
            self._settle(self._fragments.popleft())
        while self._updates:
            self._fetch_update()
        confirmed, self._confirmed = self._confirmed, 0
        return int(self._ask("confirm", self._me, confirmed))

    def sample_batch(
        self, batch_size: int = 32, timeout: float | None = None, beta: float | None = None
    ) -> SampledBatch | None:
        """Draw transitions from all shards, with replacement; wait until there are enough.

        Args:
            batch_size: Number of transitions.
            timeout: Seconds to wait; None waits forever.
            beta: Overrides the constructor's.

        Returns:
            None when the buffer is sealed and all samples due have been drawn.

        Raises:
            ReplayEmptyError: There were too few transitions in that time.
        """
        check_count("batch_size", batch_size, 1)
        began = self._answered = time.monotonic()
        granted = self._ask("take", batch_size, timeout)
        if granted is None:
            return None
        while granted:
            batch = self._draw(batch_size, self.beta if beta is None else beta)
            if batch is not None:
                return batch
            if timeout is not None and time.monotonic() - began >= timeout:
                self._ask("give_back", batch_size)
                break
            time.sleep(_PAUSE)
        raise ReplayEmptyError(
            f"no batch could be sampled for {timeout:g} s",
            f"{self.rollout_steps} steps were stored, which is too few for another batch",
            "start rollout workers, or sample_batch(timeout=None), which waits",
        )

    def update_priorities(self, batch: SampledBatch, td_error: NDArray[Any]) -> None:
        """Set the priorities of a sampled batch; overwritten or lost transitions are skipped.

        Returns at once; at most `in_flight` such calls are pending.
        """
        self._book.note_errors(batch.index, td_error)
        for number, shard in enumerate(self._book.shards):
            if not shard.errors:
                continue
            while len(self._updates) >= self._in_flight:
                self._fetch_update()
            block, learned = self._shards[number], self._book.take_errors(number)
            ref = block.actor.learn.remote(shard.generation, learned)
            self._updates.append((block.name, ref))

    def seal(self) -> None:
        """Accept no more steps: workers get None; learners get the samples still due, then None."""
        self._ask("seal")

    def get_counts(self) -> dict[str, Any]:
        """Return `inserted`, `confirmed`, `sampled`, `lost_shards`, and `stored` in each shard."""
        counts: dict[str, Any] = self._ask("counts")
        self._answered = time.monotonic()
        counts["stored"] = [0 if seen is None else seen.contents.stored for seen in self._look()]
        return counts

    @property
    def rollout_steps(self) -> int:
        """Number of steps stored so far by all workers."""
        return int(self._ask("counts")["inserted"])

    def __len__(self) -> int:
        """Return the number of transitions in all shards."""
        return sum(self.get_counts()["stored"])

    def __bool__(self) -> bool:
        return True

    def close(self) -> None:
        """End all actors now; otherwise they end when the last handle is deleted."""
        for block in (*self._shards, self._gate):
            block.close()

    def _ask(self, method: str, *arguments: Any) -> Any:
        ref = getattr(self._gate.actor, method).remote(*arguments)
        return Call(self._gate.name, ref).result()

    def _settle(self, sent: _Sent) -> None:
        """Wait until a fragment is stored, even if its shard dies or is unreachable."""
        errors = need_ray().exceptions
        give_up = time.monotonic() + _PATIENCE
        while True:
            block = self._shards[sent.shard]
            try:
                answer = need_ray().get(sent.ref)
            except errors.RayActorError as error:
                if time.monotonic() > give_up:
                    raise failure(block.name, error) from None
                if not isinstance(error, errors.ActorUnavailableError):
                    # It died and its content is lost. A shard that may be alive is asked again
                    # itself: by the fragment's number it knows whether it already has the fragment.
                    sent.shard = (sent.shard + 1) % len(self._shards)
                time.sleep(_PAUSE)
                sent.ref = self._shards[sent.shard].actor.store.remote(*sent.arguments)
            except errors.RayError as error:
                raise failure(block.name, error) from None
            else:
                self._saw(sent.shard, answer)
                self._confirmed += sent.count
                return

    def _draw(self, count: int, beta: float) -> SampledBatch | None:
        """Draw a batch from the reachable shards; None if they have nothing now."""
        masses = [1.0]
        if len(self._shards) > 1:
            masses = [0.0 if seen is None else seen.contents.mass for seen in self._look()]
            if not any(masses):
                return None
        asked = self._book.ask((count,), masses)
        refs = {k: self._shards[k].actor.draw.remote(asked.wanted(k)) for k in asked.rows}
        drawn = {k: self._fetched(k, ref) for k, ref in refs.items()}
        for k, answer in drawn.items():
            if answer is None or answer.batch is None:
                return None  # a shard was lost meanwhile: draw the whole batch again
            self._book.answer(asked, k, answer.batch, answer.chance)
        return SampledBatch.of(self._book.batch(asked, beta))

    def _look(self) -> list[Answer | None]:
        """Return the content of each shard; None for one that is unreachable."""
        refs = [block.actor.look.remote() for block in self._shards]
        return [self._fetched(k, ref) for k, ref in enumerate(refs)]

    def _fetched(self, shard: int, ref: Any) -> Answer | None:
        """Return the answer of a shard, or None if it is unreachable."""
        errors = need_ray().exceptions
        try:
            answer: Answer = need_ray().get(ref)
        except errors.RayActorError as error:
            if time.monotonic() - self._answered > _PATIENCE:
                raise failure(self._shards[shard].name, error) from None
            return None
        except errors.RayError as error:
            raise failure(self._shards[shard].name, error) from None
        self._answered = time.monotonic()
        self._saw(shard, answer)
        return answer

    def _saw(self, shard: int, answer: Answer) -> None:
        if self._book.begin(shard, answer.generation):
            self._ask("saw", shard, answer.generation)
        self._book.saw(shard, answer.contents)

    def _fetch_update(self) -> None:
        name, ref = self._updates.popleft()
        errors = need_ray().exceptions
        try:
            need_ray().get(ref)
        except errors.RayActorError:
            pass  # a dead shard has no priorities
        except errors.RayError as error:
            raise failure(name, error) from None
