"""Programs with replay in shards; run on nodes by test_sharded_replay.py.

Every transition is one of a kind: obs [item, actor, fragment], and all else follows from `item`.
Whatever waits here has a deadline, so that a broken promise is a failure and not a hang.
"""

import os
import signal
import time
from pathlib import Path

import numpy as np
from gymnasium import spaces

from muster import Task
from muster.data import (
    VERSION,
    ReplayBuffer,
    ReplayShard,
    SamplesPerInsert,
    ShardedReplay,
    ShardFeed,
    StepBlock,
)

STEPS, ENVS = 4, 2
SIZE = STEPS * ENVS
OBS, ACTION = spaces.Box(-np.inf, np.inf, (3,)), spaces.Discrete(5)
BETA = 0.5


def roles(shards, actors=1):
    return {"learner": 1, "replay": shards, "actor": actors}


def fragment(actor, number):
    """Return a fragment; its items are numbered on from those of the actor's one before."""
    item = actor * 100_000 + number * SIZE + np.arange(SIZE, dtype=np.float32).reshape(STEPS, ENVS)
    obs = np.stack([item, np.full_like(item, actor), np.full_like(item, number)], axis=-1)
    no = np.zeros((STEPS, ENVS), bool)
    action = item.astype(np.int64) % 5
    # An episode of one step each: then next_obs is not what the next step has as obs.
    return StepBlock.of(obs, action, np.cos(item), obs + 0.5, no, ~no)


def check(batch, items=None):
    """Assert that every row is a transition that an actor has made."""
    item = batch.obs[..., 0]
    assert (batch.action == item.astype(np.int64) % 5).all()
    np.testing.assert_allclose(batch.reward, np.cos(item), atol=1e-6)
    np.testing.assert_array_equal(batch.next_obs, batch.obs + 0.5)
    assert (item.astype(np.int64) % 100_000 // SIZE == batch.obs[..., 2]).all()
    assert items is None or np.isin(item, items).all()
    assert (batch.columns["version"] == batch.obs[..., 2] + 1).all()


def error_of(item):
    """Return the error that training is to find for an item."""
    return 0.2 + item % 7


def make_buffer(capacity, prioritized=False, **options):
    return ReplayBuffer(
        capacity,
        OBS,
        ACTION,
        num_envs=ENVS,
        prioritized=prioritized,
        alpha=0.8,
        columns=[VERSION],
        **options,
    )


class LoggedBuffer(ReplayBuffer):
    """Writes down what it has stored."""

    log: Path

    def push(self, data, *args, **kwargs):
        done = super().push(data, *args, **kwargs)
        with self.log.open("a") as file:
            file.write(f"{int(data.obs[0, 0, 1])} {int(data.obs[0, 0, 2])}\n")
        return done


class Program:
    """The nodes of a program: `learn` is what the learner does, `fragments` what actors send."""

    def __init__(self, task, shards, capacity, prioritized=False, log=None, **options):
        self.task, self.ids = task, range(1, 1 + shards)
        self.capacity, self.prioritized, self.log = capacity // shards, prioritized, log
        self.deadline = time.monotonic() + 300
        self.options = {"capacity": capacity, "prioritized": prioritized, "seed": 3, **options}

    def run(self, learn, fragments=10**9, pause=0.0):
        router, role = self.task.router, self.task.router.role
        if role == "replay":
            self._be_shard(router)
        elif role == "actor":
            self._act(router, fragments, pause)
        else:
            replay = ShardedReplay(self.ids, session=router.incarnation, beta=BETA, **self.options)
            got = []

            def _learn(ctx):
                assert time.monotonic() < self.deadline, "it took too long"
                done = learn(replay, ctx)
                if done is not None:
                    got.append(done)
                    ctx.finish = True

            self.task.use(_learn).run()
            return got[0] if got else None
        return None

    def _be_shard(self, router):
        def make():
            buffer = make_buffer(self.capacity, self.prioritized)
            if self.log is not None:
                buffer.__class__ = LoggedBuffer
                name = f"shard.{router.node_id}.{router.incarnation}"
                buffer.log = self.log / name
                with buffer.log.open("a") as file:
                    file.write("begin\n")
                (self.log / f"{name}.pid").write_text(str(os.getpid()))
            return buffer

        shard = ReplayShard(make, router.node_id, router.incarnation)
        self.task.use(lambda ctx: shard.serve() and None).run()

    def _act(self, router, fragments, pause):
        feed = ShardFeed(self.ids, first=router.node_id)
        actor = router.node_id

        def _act(ctx):
            number = ctx.total_step
            if number >= fragments:
                time.sleep(0.01)
                return
            time.sleep(pause)
            sent = feed.push(fragment(actor, number), version=number + 1, note=[actor, number])
            if sent and self.log is not None:
                (self.log / f"sent.{actor}").write_text(str(number + 1))

        self.task.use(_act).run()


def draw_often(shards, prioritized, fragments, batches, batch_size, prefetch):
    """Fill the shards with `fragments` of one actor, let priorities settle, and draw."""
    items = SIZE * fragments
    with Task() as task:
        program = Program(task, shards, 2 * items, prioritized, min_size=items, prefetch=prefetch)
        seen, counts, heaviest = set(), np.zeros(items, np.int64), []

        def learn(replay, ctx):
            base = 100_000 * (1 + shards)  # the actor's node
            if len(replay) < items:
                replay.receive(0)
                return None
            assert (len(replay), replay.inserted) == (items, items)
            if not prioritized:
                batch = replay.sample_many(batches, batch_size)
                check(batch)
                counts[:] = np.bincount(
                    (batch.obs[..., 0].ravel() - base).astype(int), minlength=items
                )
                assert batch.obs.shape == (batches, batch_size, 3) and (batch.weight == 1).all()
                return counts, batch.obs[..., 0] - base

            def draw():
                batch = replay.sample(batch_size)
                check(batch)
                item = (batch.obs[:, 0] - base).astype(int)
                replay.update_priorities(batch.index, error_of(item) * (-1) ** item)
                return batch, item

            while len(seen) < items:
                seen.update(draw()[1].tolist())
            for _ in range(2 * prefetch + 2):
                draw()
            for _ in range(batches):
                batch, item = draw()
                np.add.at(counts, item, 1)
                share = (error_of(item) + 1e-6) ** 0.8
                np.testing.assert_allclose(batch.weight, (share.min() / share) ** BETA, rtol=1e-5)
                heaviest.append(batch.weight.max())
            return counts, heaviest

        return program.run(learn, fragments)


def count_exactly(shards, actors, loops, samples, ratio, log):
    """Receive, with a limiter, for some loops; then look how far the actors have got."""
    with Task() as task:
        limiter = SamplesPerInsert(ratio, 64, error_buffer=max(1.0, ratio))
        program = Program(task, shards, 512, log=log, limiter=limiter)
        counted, notes, drawn = [], [], []

        def learn(replay, ctx):
            replay.receive(samples)
            counted.append(replay.inserted)
            assert len(replay.feed.notes) == len(replay.feed.versions)
            notes.extend(replay.feed.notes)
            replay.feed.notes.clear()
            replay.feed.versions.clear()
            batch = replay.sample_many(samples // 32, 32)
            check(batch)
            drawn.append(batch.reward.size)
            if ctx.total_step + 1 < loops:
                return None
            time.sleep(0.5)  # the actors go on until they have to wait
            return {"counted": counted, "notes": notes, "drawn": sum(drawn), "stored": len(replay)}

        return program.run(learn)


def late_priorities():
    """Tell errors of transitions that were overwritten since they were drawn."""
    with Task() as task:
        program = Program(task, 2, 2 * 2 * SIZE, prioritized=True, prefetch=0)
        found = {}

        def masses(replay):
            replay.sample(4)
            return [each.contents.mass for each in replay.book.shards]

        def fill_anew(replay):
            """Store until each shard has nothing in it that it had before: two fragments."""
            wanted = [each.contents.inserted + 2 * SIZE for each in replay.book.shards]
            while any(
                each.contents.inserted < least
                for each, least in zip(replay.book.shards, wanted, strict=True)
            ):
                replay.limiter = SamplesPerInsert(1e-3, replay.inserted + SIZE, 1.0)
                replay.limiter.note_insert(replay.inserted)
                assert replay.receive(0)

        def learn(replay, ctx):
            fill_anew(replay)
            old = replay.sample(32)
            found["before"] = masses(replay)
            fill_anew(replay)
            found["overwritten"] = masses(replay)
            replay.update_priorities(old.index, np.full(32, 1000.0))
            found["after late errors"] = masses(replay)
            new = replay.sample(32)
            replay.update_priorities(new.index[:1], np.array([500.0]))
            found["after a new error"] = sum(masses(replay))
            fill_anew(replay)
            found["new ones after it"] = masses(replay)
            try:
                replay.update_priorities(np.array([10**6]), np.ones(1))
            except Exception as error:
                found["never given out"] = str(error)
            try:
                replay.update_priorities(new.index, np.full(32, np.nan))
            except Exception as error:
                found["not finite"] = str(error)
            return found

        return program.run(learn)


def killed_shard(kill, shards, prioritized, loops, log):
    """Train while a shard is killed, if `kill` says when; tell what was counted and drawn."""
    with Task() as task:
        limiter = SamplesPerInsert(4.0, 256, error_buffer=4.0)
        program = Program(task, shards, 1024, prioritized, log=log, limiter=limiter)
        told = {"notes": [], "sizes": [], "batches": 0, "after": 0, "late": 0}
        first = {}

        def kill_now():
            os.kill(int((log / "shard.1.0.pid").read_text()), signal.SIGKILL)

        def learn(replay, ctx):
            if kill == "early" and ctx.total_step == 0:
                hear_first_offers(replay)
                kill_now()
            replay.receive(2 * 32)
            told["notes"] += [tuple(note) for note in replay.feed.notes]
            replay.feed.notes.clear()
            told["sizes"].append(len(replay))
            generations = [shard.generation for shard in replay.book.shards]
            for _ in range(2):
                batch = replay.sample(32)
                if batch is None:
                    continue
                check(batch, items_of(told["notes"]))
                told["batches"] += 1
                told["after"] += max(generations) > 0
                replay.update_priorities(batch.index, np.full(32, 0.1))
                if max(generations) == 0:
                    first["batch"] = batch
            if kill == "late" and ctx.total_step == loops // 3:
                kill_now()
            if max(generations) > 0 and "batch" in first:
                # Of the process that died, and others: errors that nobody waits for any more.
                replay.update_priorities(first["batch"].index, np.full(32, 0.1))
                told["late"] += 1
            told["generations"] = generations
            if ctx.total_step < loops or (kill and told["after"] < 50):
                return None
            told["inserted"] = replay.inserted
            told["contents"] = [
                (each.contents.stored, each.contents.mass) for each in replay.book.shards
            ]
            return told

        return program.run(learn, pause=0.001)


def killed_learner(shards, loops, log):
    """Have the learner die in the middle; the one after it tells what it has counted."""
    with Task() as task:
        limiter = SamplesPerInsert(4.0, 16, error_buffer=4.0)
        program = Program(task, shards, 1024, log=log, limiter=limiter)
        notes = []

        def learn(replay, ctx):
            if loops == 0 and task.router.incarnation == 0:
                hear_first_offers(replay)
                (log / "died").touch()
                os.kill(os.getpid(), signal.SIGKILL)
            replay.receive(64)
            notes.extend(replay.feed.notes)
            replay.feed.notes.clear()
            check(replay.sample(16), items_of(notes))
            if ctx.total_step < max(loops, 30):
                return None
            if task.router.incarnation == 0:
                (log / "died").touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return notes, replay.inserted, len(replay)

        return program.run(learn)


def hear_first_offers(replay):
    """Wait until all shards have begun; so early nothing was acknowledged, and all is resent."""
    while not all(each.is_ready for each in replay._shards) or len(replay._offers) < 2:
        assert replay._on_message(wait=True)


def stored_by(log):
    """Return the fragments that the shards have stored since each began, by shard and process."""
    found = {}
    for path in log.glob("shard.?.?"):
        lines = path.read_text().rpartition("begin\n")[2].splitlines()
        found[path.name] = [tuple(map(int, line.split())) for line in lines]
    return found


def items_of(notes):
    return np.concatenate([fragment(*note).obs[..., 0].ravel() for note in notes])


def save_contents(shards, prioritized, fragments):
    """Return what is saved of so many fragments, and how often each item was drawn."""
    with Task() as task:
        limiter = SamplesPerInsert(1e-3, fragments * SIZE, 1.0)
        capacity = shards * fragments * SIZE
        program = Program(task, shards, capacity, prioritized, limiter=limiter, prefetch=1)

        def learn(replay, ctx):
            replay.receive(0)
            batch = replay.sample(32)
            replay.update_priorities(batch.index, error_of(batch.obs[:, 0]))
            state = replay.state_dict()
            masses = [shard.contents.mass for shard in replay.book.shards]
            return state, replay.inserted, len(replay), masses

        return program.run(learn, fragments)


def load_contents(shards, prioritized, fragments, state):
    """Begin with what was saved, and draw."""
    with Task() as task:
        capacity = shards * fragments * SIZE
        program = Program(task, shards, capacity, prioritized, prefetch=1)

        def learn(replay, ctx):
            replay.load_state_dict(state)
            counted = replay.inserted
            replay.receive(0)
            replay.sample(32)
            batch = replay.sample(32)
            return counted, len(replay), np.unique(batch.obs[:, 0]).tolist(), replay.state_dict()

        return program.run(learn, fragments=0)
