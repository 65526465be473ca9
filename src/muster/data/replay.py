"""The replay buffer: stores experience in order, and returns it at random.

    collector -> add / push -> TransitionStore (rows of vector steps; the oldest is overwritten)
    sample: random ids (uniform, or from Priorities) -> the unit expands them -> Batch
    update_priorities(batch.index, td_error) -> Priorities

All random numbers come from one generator, which `state_dict` includes, so a saved and restored
buffer continues with the same bits.
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
from muster.data.feed import Feed, feed_at_home
from muster.data.limiter import SamplesPerInsert
from muster.data.obs import Array
from muster.data.schema import PRIORITY, VERSION, Column, Schema
from muster.data.steps import FragmentSource, Steps, check_block, check_step
from muster.data.store import TransitionStore
from muster.data.units import Sequence, Transition
from muster.errors import OptionError

_FORMAT = 1


class ReplayBuffer:
    """Transitions of vector environments, for any number of threads in one process.

    Each observation is stored once: the next observation of a transition is the `obs` of the same
    environment's next `add`. The buffer relies on this and does not check it. Where it does not
    hold (the environments were created anew), call `cut_episodes`. n-step returns are computed when
    sampled. They continue across pushes, end at the end of the episode and at the newest row, and
    have the discount of the steps that they cover.

    Args:
        capacity: Transitions to store; rounded down to full rows of `num_envs`.
        obs_space: Space of one environment: Box (uint8 stays uint8, else float32), Discrete
            (int64), or a Dict of those.
        action_space: Space of one environment: Discrete, MultiDiscrete (int64) or Box (float32).
        num_envs: Environments that step together.
        n_step: Maximum number of rewards to sum.
        gamma: Discount per step.
        prioritized: Draw by priority instead of uniformly.
        alpha: Exponent of priorities; 0 is uniform, 1 is in proportion.
        beta: How far importance weights correct the sampling bias; `sample` can override it.
        min_size: Transitions to wait for before the first sample.
        seed: Seed of the generator that draws.
        home: In a parallel run, the node that stores the transitions: `role.<name>`, `node.<id>` or
            an id. All other nodes only `push`, which sends transitions there, and `receive` on that
            node stores them. Without it, every node has its own buffer.
        limiter: At home, the ratio of samples to inserts.
        name: Distinguishes several such buffers.
        columns: Extra columns that actors write, which batches have in `columns`. `push` fills in
            `VERSION`; `PRIORITY` is the initial priority of new transitions, instead of the largest
            so far.
        unit: The unit of one draw; `Transition(n_step)` by default.
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
        """The unit of one draw."""
        self.schema = Schema(obs_space, action_space, tuple(columns))
        """The columns of a step."""
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
        """Receives transitions of other nodes, or sends them."""
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
        """Bytes of the arrays; until the buffer is full, not all of them are in physical memory."""
        priorities = self._draws.priorities
        return self._store.nbytes + (priorities.nbytes if priorities else 0)

    @property
    def mass(self) -> float:
        """Total weight of draws: the sum of p^alpha; if uniform, the number of transitions."""
        with self._lock:
            return self._draws.mass

    def chance(self, index: Array) -> NDArray[np.float64]:
        """Return the probability of drawing each of these stored transitions (`batch.index`)."""
        with self._lock:
            return self._draws.chance(index)

    def terminated(self, index: Array) -> NDArray[np.bool_]:
        """Return whether the steps of each of these stored transitions terminate an episode.

        `batch.discount == 0` says the same, unless gamma is 0 or so small that its power is.
        """
        with self._lock:
            return self._store.terminates(index, self.unit.n)

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
            obs: Observations, [N, ...] or a dict of such arrays.
            action: Actions taken, [N, ...].
            reward: Rewards, [N].
            next_obs: Next observations, like `obs`; at an episode's end its final observation.
            terminated: Bool [N].
            truncated: Bool [N]; where both are set, terminated counts.
            **columns: Extra columns of the actor, [N, ...] each.
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
        """Store the result of a collector: all of it or, if it does not fit, nothing.

        On a node that is not home, send it there, and wait if there is no room. False if the run
        finished first.

        Args:
            data: Steps [T, N, ...] of the same environments as in the previous push.
            cur_collector_envstep: The collector's counter; nothing here depends on it.
            version: Version of the weights that chose the actions.
            note: Data to send along.
            source: The origin of the steps, if several sources push in turn: they continue what the
                same source pushed before.
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
        """Receive transitions of other nodes, until `samples` transitions may be sampled.

        Wait for them if the limiter, or `min_size`, requires more. With a limiter, receive no more
        than required, so that pushing nodes wait for sampling. False if the run finished first. The
        samples are counted as taken.
        """
        feed = feed_at_home(self.feed)
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

    def _insert(
        self, steps: Steps, columns: dict[str, Any], source: FragmentSource | None = None
    ) -> None:
        expected = self._draws.check(columns)
        with self._lock:
            self._draws.insert(steps, expected, source)

    def cut_episodes(self, envs: object = None) -> None:
        """Declare that running episodes do not continue: the next steps start new ones.

        Their newest transitions are then treated as truncated.

        Args:
            envs: Bool [N], the environments; all by default.
        """
        chosen = np.ones(self.num_envs, np.bool_) if envs is None else np.asarray(envs)
        if chosen.dtype != np.bool_ or chosen.shape != (self.num_envs,):
            raise OptionError(
                f"envs={envs!r} is not possible",
                f"it must be a bool for each of {self.num_envs} environments",
                "buffer.cut_episodes()",
            )
        with self._lock:
            self._draws.cut(chosen)

    def sample(
        self, batch_size: int, train_iter: int | None = None, *, beta: float | None = None
    ) -> Any:
        """Draw transitions, or sequences, with replacement.

        Args:
            batch_size: Number of draws.
            train_iter: The learner's counter; nothing here depends on it.
            beta: Overrides the constructor's value; no effect on uniform replay.

        Returns:
            A Batch, or a SequenceBatch if the unit is a sequence. None while fewer than
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

        Only for uniform replay: priorities would change between the calls.
        """
        check_many(count, self.prioritized)
        with self._lock:
            return self._draw_uniform((count, batch_size)) if self._ready(batch_size) else None

    def draw_at(self, where: NDArray[np.float64]) -> Any:
        """Read the items at these fractions, in [0, 1), of `mass`; the caller chose them at random.

        For a buffer that is one of several shards (`data/shards.py`). All weights are 1.
        """
        with self._lock:
            return self._read(self._draws.ids_at(where), np.ones(where.shape, np.float32))

    @property
    def largest(self) -> float:
        """The largest p^alpha so far, which new transitions get."""
        priorities = self._draws.priorities
        return 1.0 if priorities is None else priorities.largest

    def expect(self, largest: float) -> None:
        """Give new transitions at least this p^alpha, which another shard knows."""
        priorities = self._draws.priorities
        if priorities is not None:
            with self._lock:
                priorities.largest = max(priorities.largest, largest)

    def update_priorities(self, index: Array, td_error: Array) -> None:
        """Set the priorities of sampled transitions; skip those that have been overwritten since.

        Does nothing if replay is uniform, so that one loop serves both.

        Args:
            index: `batch.index`.
            td_error: Errors of the same shape, of either sign; for sequences `unit.priority(...)`.

        Raises:
            OptionError: A td_error is not finite, or the arrays do not match.
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
        """Restore exactly the buffer that `state` was saved from.

        The state does not include `n_step`, `gamma`, `beta` and `min_size`: they only affect
        reading.

        Raises:
            OptionError: The state is of a buffer with another capacity or other spaces.
        """
        theirs = {"format": state.get("format"), **state.get("made_for", {})}
        check_made_for({"format": _FORMAT, **self._made_for}, theirs)
        check_complete(self._state_keys, state)
        # Everything that may be rejected comes first, so that a rejection changes nothing.
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
