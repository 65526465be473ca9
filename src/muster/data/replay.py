"""The replay buffer: what was experienced, kept in order, given back at random.

    collector -> add / push -> TransitionStore (rows of vector steps; the oldest is overwritten)
    sample: random ids (uniform, or from Priorities) -> what the unit makes of them now -> Batch
    update_priorities(batch.index, td_error) -> Priorities

Everything random comes from one generator, and `state_dict` holds it, so a buffer that was saved
and loaded goes on with the same bits.
"""

import threading
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from muster.data.batch import Batch, SequenceBatch
from muster.data.block import StepBlock
from muster.data.checks import (
    check_complete,
    check_count,
    check_fraction,
    check_made_for,
    check_many,
    check_reachable,
)
from muster.data.draws import Draws
from muster.data.feed import Feed
from muster.data.limiter import SamplesPerInsert
from muster.data.obs import Array
from muster.data.schema import PRIORITY, VERSION, Column, Schema
from muster.data.steps import FragmentSource, Steps, check_block, check_step
from muster.data.store import TransitionStore
from muster.data.units import Sequence, Transition
from muster.errors import OptionError, TaskError

_FORMAT = 1


class ReplayBuffer:
    """Transitions of vector environments, for any number of threads in one process.

    Each observation is stored once: the next observation of a transition is what the same
    environment's next `add` has as `obs`. This is relied upon, not checked. Where it does not hold
    (the environments were made anew), say so with `cut_episodes`. n-step returns are computed when
    sampled; they go on over pushes, end where the episode ends and at the newest row, and have the
    discount that belongs to the steps they took.

    Args:
        capacity: Transitions to remember; rounded down to full rows of `num_envs`.
        obs_space: Of one environment: Box (uint8 stays uint8, else float32), Discrete (int64),
            or a Dict of those.
        action_space: Of one environment: Discrete, MultiDiscrete (int64) or Box (float32).
        num_envs: Environments that step together.
        n_step: Rewards to sum up, at most.
        gamma: Discount per step.
        prioritized: Draw by priority instead of uniformly.
        alpha: How much priorities count; 0 is uniform, 1 is in proportion.
        beta: How far importance weights correct for it; `sample` may be given another.
        min_size: Transitions to wait for before the first sample.
        seed: Of the generator that draws.
        home: In a parallel run, the node where the transitions are: `role.<name>`, `node.<id>` or
            an id. All others only `push`, which sends them there, and `receive` there takes them
            in. Without this, every node has a buffer of its own.
        limiter: At home, how many samples there are to be for each insert.
        name: Tells several such buffers apart.
        columns: What actors write besides, and batches have in `columns`. `VERSION` is filled in by
            `push`; `PRIORITY` is what new transitions are drawn by, instead of the largest so far.
        unit: What one draw is; `Transition(n_step)` without it.
        in_flight: Fragments that each node may have sent and not seen stored; then `push` waits.
    """

    def __init__(
        self,
        capacity: int,
        obs_space: object,
        action_space: object,
        num_envs: int = 8,
        n_step: int = 1,
        gamma: float = 0.99,
        prioritized: bool = False,
        alpha: float = 0.6,
        beta: float = 0.4,
        min_size: int = 0,
        seed: int = 0,
        home: str | int | None = None,
        limiter: SamplesPerInsert | None = None,
        name: str = "replay",
        columns: Iterable[Column] = (),
        unit: Transition | Sequence | None = None,
        in_flight: int = 4,
    ) -> None:
        check_count("num_envs", num_envs, 1)
        check_count("capacity", capacity, num_envs)
        check_count("min_size", min_size, 0)
        check_count("seed", seed, 0)
        for option, fraction in (("gamma", gamma), ("alpha", alpha), ("beta", beta)):
            check_fraction(option, fraction)
        self.unit = Transition(n_step) if unit is None else unit
        """What one draw is."""
        self.schema = Schema(obs_space, action_space, tuple(columns))
        """What a step is made of."""
        self._store = TransitionStore(capacity // num_envs, num_envs, self.schema)
        self.capacity = self._store.rows * num_envs
        self.num_envs = num_envs
        self.gamma = gamma
        self.prioritized = prioritized
        self.beta = beta
        self.min_size = min_size
        check_reachable("min_size", min_size, self.capacity)
        self._draws = Draws(
            self._store, self.unit, alpha if prioritized else None, self.schema.has(PRIORITY)
        )
        self._powers = np.asarray([gamma**k for k in range(self.unit.n + 1)])
        self._rng = np.random.Generator(np.random.PCG64(seed))
        self._lock = threading.Lock()
        self.limiter = limiter
        self.feed = None if home is None else Feed(name, home, in_flight)
        """Where transitions of other nodes come in, or go out."""
        self._made_for = {
            "capacity": self.capacity,
            "num_envs": num_envs,
            "obs_space": self.schema.obs.description,
            "action_space": self.schema.action.description,
            "alpha": float(alpha) if prioritized else None,
        }
        if isinstance(self.unit, Sequence):
            self._made_for["unit"] = str(unit)
        self._state_keys = frozenset(self.state_dict()) - {"columns"}

    def __len__(self) -> int:
        """Return the number of transitions that can be sampled."""
        return len(self._store)

    @property
    def inserted(self) -> int:
        """Transitions ever added."""
        return self._store.inserted

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays; those of a buffer that is not full yet are not all in memory."""
        priorities = self._draws.priorities
        return self._store.nbytes + (priorities.nbytes if priorities else 0)

    @property
    def mass(self) -> float:
        """What a draw is in proportion to: the sum of all p^alpha; uniform: the transitions."""
        with self._lock:
            return self._draws.mass

    def chance(self, index: Array) -> NDArray[np.float64]:
        """Return how probable each of these stored transitions, by `batch.index`, is to draw."""
        with self._lock:
            return self._draws.chance(index)

    def add(
        self,
        obs: object,
        action: object,
        reward: object,
        next_obs: object,
        terminated: object,
        truncated: object,
        **columns: object,
    ) -> None:
        """Store one vector step; everything is copied.

        Args:
            obs: What was seen, [N, ...] or a dict of such arrays.
            action: What was done, [N, ...].
            reward: What it earned, [N].
            next_obs: What it led to, like `obs`; at an episode's end its final observation.
            terminated: Bool [N].
            truncated: Bool [N]; where both are set, terminated counts.
            **columns: What the actor wrote besides, [N, ...] each.
        """
        given = obs, action, reward, next_obs, terminated, truncated
        step = check_step(self.schema, self.num_envs, *given, **columns)
        self._insert(step, columns)

    def push(
        self,
        data: StepBlock,
        cur_collector_envstep: int | None = None,
        *,
        version: int = 0,
        note: Any = None,
        source: FragmentSource | None = None,
    ) -> bool:
        """Store what a collector returned: all of it or, if it does not fit, nothing.

        Away from home it is sent there, which may mean to wait. False if the run finished first.

        Args:
            data: Steps [T, N, ...] of the same environments that the last ones came from.
            cur_collector_envstep: The collector's counter; nothing here depends on it.
            version: Of the weights that chose the actions.
            note: What else to send along.
            source: Whose steps they are, where several push in turn: they continue what the same
                source pushed before.
        """
        if self.feed is not None and not self.feed.is_home:
            return self.feed.send(data, version, note)
        if self.schema.has(VERSION) and VERSION.name not in data.columns:
            versions = np.broadcast_to(np.int64(version), data.terminated.shape)
            data = replace(data, columns={**data.columns, VERSION.name: versions})
        self._insert(check_block(self.schema, self.num_envs, data), data.columns, source)
        if self.limiter is not None:
            self.limiter.note_insert(len(data))
        return True

    def receive(self, samples: int) -> bool:
        """Take in what other nodes pushed, until so many transitions may be sampled.

        Waits for them where the limiter, or `min_size`, wants more. Takes no more than that where
        there is a limiter, so those who push wait for those who sample. False if the run finished
        first; samples are counted as taken.
        """
        feed = self._feed_at_home()
        while self._wants_more(samples, feed):
            received = feed.receive()
            if received is None:
                return False
            fragment, source = received
            self.push(fragment.data, version=fragment.version, source=source)
        if self.limiter is not None:
            self.limiter.note_sample(samples)
        return True

    def _wants_more(self, samples: int, feed: Feed) -> bool:
        if self.limiter is not None:
            return not self.limiter.may_sample(samples)
        return len(self) < self.min_size or feed.waiting() > 0

    def _feed_at_home(self) -> Feed:
        if self.feed is None or not self.feed.is_home:
            raise TaskError(
                "receive() of this buffer is not possible",
                "only where a buffer with a home lives something comes in"
                if self.feed is None
                else "it lives on another node",
                'ReplayBuffer(..., home="role.learner"), on the learner',
            )
        return self.feed

    def _insert(
        self, steps: Steps, columns: dict[str, Any], source: FragmentSource | None = None
    ) -> None:
        expected = self._draws.check(columns)
        with self._lock:
            self._draws.insert(steps, expected, source)

    def cut_episodes(self, envs: object = None) -> None:
        """Say that running episodes are not continued: what is added next starts new ones.

        Their newest transitions are then treated as truncated.

        Args:
            envs: Bool [N], which environments; all by default.
        """
        chosen = np.ones(self.num_envs, np.bool_) if envs is None else np.asarray(envs)
        if chosen.dtype != np.bool_ or chosen.shape != (self.num_envs,):
            raise OptionError(
                f"envs={envs!r} is not possible",
                f"it is a bool for each of {self.num_envs} environments",
                "buffer.cut_episodes()",
            )
        with self._lock:
            self._draws.cut(chosen)

    def sample(
        self, batch_size: int, train_iter: int | None = None, *, beta: float | None = None
    ) -> Any:
        """Draw transitions, or sequences, with replacement.

        Args:
            batch_size: How many.
            train_iter: The learner's counter; nothing here depends on it.
            beta: Instead of the constructor's; without effect where replay is uniform.

        Returns:
            A Batch, or a SequenceBatch where that is the unit. None while fewer than
            max(batch_size, min_size) transitions are stored, or no sequence is complete.
        """
        if beta is not None:
            check_fraction("beta", beta)
        with self._lock:
            if not self._ready(batch_size):
                return None
            priorities = self._draws.priorities
            if not self.prioritized or priorities is None:
                return self._draw_uniform((batch_size,))
            ids, weight = priorities.draw(
                self._rng.random(batch_size),
                self._store.inserted,
                self.beta if beta is None else beta,
            )
            return self._read(ids, weight)

    def sample_many(self, count: int, batch_size: int) -> Any:
        """Draw what `count` calls of `sample` would, as one Batch of leading shape [count, B].

        Only where replay is uniform: priorities would change between the calls.
        """
        check_many(count, self.prioritized)
        with self._lock:
            return self._draw_uniform((count, batch_size)) if self._ready(batch_size) else None

    def draw_at(self, where: NDArray[np.float64]) -> Any:
        """Read what lies at these parts, in [0, 1), of `mass`: what is random chose them.

        For a buffer that is a shard of several (`data/shards.py`). All weights are 1.
        """
        with self._lock:
            return self._read(self._draws.ids_at(where), np.ones(where.shape, np.float32))

    @property
    def largest(self) -> float:
        """The largest p^alpha that was ever known, which is what new transitions get."""
        priorities = self._draws.priorities
        return 1.0 if priorities is None else priorities.largest

    def expect(self, largest: float) -> None:
        """Give new transitions no less than this p^alpha, which is known elsewhere."""
        priorities = self._draws.priorities
        if priorities is not None:
            with self._lock:
                priorities.largest = max(priorities.largest, largest)

    def update_priorities(self, index: Array, td_error: Array) -> None:
        """Set the priorities of sampled transitions; those overwritten since are passed over.

        Does nothing where replay is uniform, so that one loop serves both.

        Args:
            index: `batch.index`.
            td_error: Of the same shape, of either sign; for sequences `unit.priority(...)`.

        Raises:
            OptionError: a td_error is not finite, or the arrays do not fit.
        """
        priorities = self._draws.priorities
        if self.prioritized and priorities is not None:
            with self._lock:
                priorities.update(index, td_error, self._store.inserted, len(self._store))

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of everything: contents (oldest first), priorities and random state."""
        with self._lock:
            return {
                "format": _FORMAT,
                "made_for": dict(self._made_for),
                "rng": self._rng.bit_generator.state,
                **self._store.state(),
                **self._draws.state(),
            }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on exactly where the buffer stood that `state` is from.

        `n_step`, `gamma`, `beta` and `min_size` are not part of it: they only shape what is read.

        Raises:
            OptionError: the state is of a buffer of another capacity or for other spaces.
        """
        theirs = {"format": state.get("format"), **state.get("made_for", {})}
        check_made_for({"format": _FORMAT, **self._made_for}, theirs)
        check_complete(self._state_keys, state)
        # What can be refused comes first, so that a refusal leaves the buffer as it was.
        bits = np.random.PCG64()
        bits.state = state["rng"]
        with self._lock:
            self._draws.load(state)
            self._rng = np.random.Generator(bits)

    def _ready(self, batch_size: int) -> bool:
        wanted = max(batch_size, self.min_size)
        if batch_size < 1 or wanted > self.capacity:
            check_count("batch_size", batch_size, 1)
            check_reachable("batch_size", batch_size, self.capacity)
        return len(self._store) >= wanted and self._draws.mass > 0

    def _draw_uniform(self, shape: tuple[int, ...]) -> Any:
        weight = np.empty(shape, np.float32)
        weight.fill(1.0)
        return self._read(self._draws.ids_at(self._rng.random(shape)), weight)

    def _read(self, ids: NDArray[np.int64], weight: Array) -> Batch | SequenceBatch:
        starts = self._draws.starts
        if starts is None:
            obs, action, reward, next_obs, discount, columns = self._store.read(ids, self._powers)
            return Batch(obs, action, reward, next_obs, discount, weight, ids, columns)
        flat = ids.reshape(-1)
        paths = self._store.read_paths(flat, starts.unit.length)
        return starts.batch(paths, flat, weight.reshape(-1), self._powers).reshape(ids.shape)
