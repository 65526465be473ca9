"""The replay buffer: what was experienced, kept in order, given back at random.

    collector -> add / push -> TransitionStore (rows of vector steps; the oldest is overwritten)
    sample: random ids (uniform, or from Priorities) -> n-step transitions computed now -> Batch
    update_priorities(batch.index, td_error) -> Priorities

Everything random comes from one generator, and `state_dict` holds it, so a buffer that was saved
and loaded goes on with the same bits.
"""

import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from muster.data.batch import Array, Batch, Transitions
from muster.data.checks import (
    check_complete,
    check_count,
    check_fraction,
    check_made_for,
    check_reachable,
)
from muster.data.feed import Feed, Fragment
from muster.data.layout import ObsLayout, field_of
from muster.data.limiter import SamplesPerInsert
from muster.data.priorities import Priorities
from muster.data.store import TransitionStore
from muster.errors import OptionError, TaskError

_FORMAT = 1


class ReplayBuffer:
    """Transitions of vector environments, for any number of threads in one process.

    Each observation is stored once: the next observation of a transition is what the same
    environment's next `add` has as `obs`. This is relied upon, not checked. Where it does not hold
    (the environments were made anew), say so with `cut_episodes`. n-step returns are computed when
    sampled; they end where the episode ends and at the newest row, with the discount that belongs
    to the steps they took.

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
            in. Each push of another node is a piece of its own: n-step returns do not go beyond
            it. Without this, every node has a buffer of its own.
        limiter: At home, how many samples there are to be for each insert.
        name: Tells several such buffers apart.
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
    ) -> None:
        check_count("num_envs", num_envs, 1)
        check_count("capacity", capacity, num_envs)
        check_count("n_step", n_step, 1)
        check_count("min_size", min_size, 0)
        check_count("seed", seed, 0)
        for option, fraction in (("gamma", gamma), ("alpha", alpha), ("beta", beta)):
            check_fraction(option, fraction)
        layout = ObsLayout(obs_space)
        action = field_of("action_space", action_space)
        self._store = TransitionStore(capacity // num_envs, num_envs, layout, action)
        self.capacity = self._store.rows * num_envs
        self.num_envs = num_envs
        self.n_step = n_step
        self.gamma = gamma
        self.prioritized = prioritized
        self.beta = beta
        self.min_size = min_size
        check_reachable("min_size", min_size, self.capacity)
        self._priorities = Priorities(self.capacity, alpha) if prioritized else None
        self._powers = np.asarray([gamma**k for k in range(n_step + 1)])
        self._rng = np.random.Generator(np.random.PCG64(seed))
        self._lock = threading.Lock()
        self.limiter = limiter
        self.feed = None if home is None else Feed(name, home)
        """Where transitions of other nodes come in, or go out."""
        self._made_for = {
            "capacity": self.capacity,
            "num_envs": num_envs,
            "obs_space": layout.description,
            "action_space": action.description,
            "alpha": float(alpha) if prioritized else None,
        }
        self._state_keys = frozenset(self.state_dict())

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
        return self._store.nbytes + (self._priorities.nbytes if self._priorities else 0)

    @property
    def mass(self) -> float:
        """What a draw is in proportion to: the sum of all p^alpha; uniform: the transitions."""
        with self._lock:
            return float(len(self._store)) if self._priorities is None else self._priorities.total

    def chance(self, index: Array) -> NDArray[np.float64]:
        """Return how probable each of these stored transitions, by `batch.index`, is to draw."""
        with self._lock:
            if self._priorities is None:
                return np.full(np.shape(index), 1.0 / len(self._store))
            return self._priorities.of(index) / self._priorities.total

    def add(
        self,
        obs: object,
        action: object,
        reward: object,
        next_obs: object,
        terminated: object,
        truncated: object,
    ) -> None:
        """Store one vector step; everything is copied.

        Args:
            obs: What was seen, [N, ...] or a dict of such arrays.
            action: What was done, [N, ...].
            reward: What it earned, [N].
            next_obs: What it led to, like `obs`; at an episode's end its final observation.
            terminated: Bool [N].
            truncated: Bool [N]; where both are set, terminated counts.
        """
        lead = (self.num_envs,)
        step = self._store.check(lead, obs, action, reward, next_obs, terminated, truncated)
        with self._lock:
            if self._priorities is not None:
                self._priorities.add(self._store.inserted, self.num_envs)
            self._store.add(step)

    def push(
        self,
        data: Transitions,
        cur_collector_envstep: int | None = None,
        *,
        version: int = 0,
        note: Any = None,
    ) -> bool:
        """Store what a collector returned: all of it or, if it does not fit, nothing.

        Away from home it is sent there, which may mean to wait. False if the run finished first.

        Args:
            data: Steps [T, N, ...] of the same environments that the last ones came from.
            cur_collector_envstep: The collector's counter; nothing here depends on it.
            version: Of the weights that chose the actions; only sent along.
            note: What else to send along.
        """
        if self.feed is not None and not self.feed.is_home:
            return self.feed.send(Fragment(data, version, note))
        self._store_all(data)
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
            data = feed.receive()
            if data is None:
                return False
            self._store_all(data)
            # The next piece may be another node's: nothing continues this one.
            self.cut_episodes()
            if self.limiter is not None:
                self.limiter.note_insert(len(data))
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

    def _store_all(self, data: Transitions) -> None:
        count = len(data.terminated)
        obs, action, reward, next_obs, terminated, truncated = self._store.check(
            (count, self.num_envs),
            data.obs,
            data.action,
            data.reward,
            data.next_obs,
            data.terminated,
            data.truncated,
        )
        with self._lock:
            for t in range(count):
                if self._priorities is not None:
                    self._priorities.add(self._store.inserted, self.num_envs)
                self._store.add(
                    (
                        [each[t] for each in obs],
                        action[t],
                        reward[t],
                        [each[t] for each in next_obs],
                        terminated[t],
                        truncated[t],
                    )
                )

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
            self._store.cut(chosen)

    def sample(
        self, batch_size: int, train_iter: int | None = None, *, beta: float | None = None
    ) -> Batch | None:
        """Draw transitions, with replacement.

        Args:
            batch_size: How many.
            train_iter: The learner's counter; nothing here depends on it.
            beta: Instead of the constructor's; without effect where replay is uniform.

        Returns:
            None while fewer than max(batch_size, min_size) transitions are stored.
        """
        if beta is not None:
            check_fraction("beta", beta)
        with self._lock:
            if not self._ready(batch_size):
                return None
            if self._priorities is None:
                return self._draw_uniform((batch_size,))
            ids, weight = self._priorities.draw(
                self._rng.random(batch_size),
                self._store.inserted,
                self.beta if beta is None else beta,
            )
            return self._read(ids, weight)

    def sample_many(self, count: int, batch_size: int) -> Batch | None:
        """Draw what `count` calls of `sample` would, as one Batch of leading shape [count, B].

        Only where replay is uniform: priorities would change between the calls.
        """
        if self._priorities is not None:
            raise OptionError(
                "sample_many() of a prioritized buffer is not possible",
                "each batch changes the priorities that the next one is drawn by",
                "call sample() and update_priorities() in turn",
            )
        check_count("count", count, 1)
        with self._lock:
            return self._draw_uniform((count, batch_size)) if self._ready(batch_size) else None

    def draw_at(self, where: NDArray[np.float64]) -> Batch:
        """Read what lies at these parts, in [0, 1), of `mass`: what is random chose them.

        For a buffer that is a shard of several (`data/shards.py`). All weights are 1.
        """
        with self._lock:
            if self._priorities is None:
                ids = self._ids_at(where)
            else:
                ids = self._priorities.ids_at(where, self._store.inserted)
            return self._read(ids, np.ones(ids.shape, np.float32))

    @property
    def largest(self) -> float:
        """The largest p^alpha that was ever known, which is what new transitions get."""
        return 1.0 if self._priorities is None else self._priorities.largest

    def expect(self, largest: float) -> None:
        """Give new transitions no less than this p^alpha, which is known elsewhere."""
        if self._priorities is not None:
            with self._lock:
                self._priorities.largest = max(self._priorities.largest, largest)

    def update_priorities(self, index: Array, td_error: Array) -> None:
        """Set the priorities of sampled transitions; those overwritten since are passed over.

        Does nothing where replay is uniform, so that one loop serves both.

        Args:
            index: `batch.index`.
            td_error: Of the same shape, of either sign.

        Raises:
            OptionError: a td_error is not finite, or the arrays do not fit.
        """
        if self._priorities is not None:
            with self._lock:
                self._priorities.update(index, td_error, self._store.inserted, len(self._store))

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of everything: contents (oldest first), priorities and random state."""
        with self._lock:
            state = {
                "format": _FORMAT,
                "made_for": dict(self._made_for),
                "rng": self._rng.bit_generator.state,
                **self._store.state(),
            }
            if self._priorities is not None:
                state |= self._priorities.state(self._store.inserted)
            return state

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
            if self._priorities is not None:
                self._priorities.check(state, state["inserted"])
            self._store.load(state)
            if self._priorities is not None:
                self._priorities.load(state, self._store.inserted)
            self._rng = np.random.Generator(bits)

    def _ready(self, batch_size: int) -> bool:
        wanted = max(batch_size, self.min_size)
        if batch_size < 1 or wanted > self.capacity:
            check_count("batch_size", batch_size, 1)
            check_reachable("batch_size", batch_size, self.capacity)
        return len(self._store) >= wanted

    def _draw_uniform(self, shape: tuple[int, ...]) -> Batch:
        weight = np.empty(shape, np.float32)
        weight.fill(1.0)
        return self._read(self._ids_at(self._rng.random(shape)), weight)

    def _ids_at(self, where: NDArray[np.float64]) -> NDArray[np.int64]:
        # Not rng.integers, which takes five times as long. A number below 1 times a size never
        # rounds up to the size, and the bias, stored / 2^53, is too small to be seen.
        stored = len(self._store)
        ids = (where * stored).astype(np.int64)
        ids += self._store.inserted - stored
        return ids

    def _read(self, ids: NDArray[np.int64], weight: Array) -> Batch:
        obs, action, reward, next_obs, discount = self._store.read(ids, self._powers)
        return Batch(obs, action, reward, next_obs, discount, weight, ids)
