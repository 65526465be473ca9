"""Which unrolls are learnt from next: each once, none too old, and nobody waits for ever."""

import random
from collections import Counter, deque
from dataclasses import dataclass, field

import pytest

from muster.algos.impala_config import IMPALAConfig
from muster.errors import TaskError
from muster.workers.unroll_queue import UnrollQueue


def queue_of(actors=2, batch=1, in_flight=2, max_lag=None, version=10):
    return UnrollQueue(range(actors), batch, in_flight, max_lag, version)


def arrive(queue, actor, number, version, incarnation=0, session=0):
    queue.arrived((actor, incarnation, number), actor, incarnation, session, number, version)


def test_the_oldest_are_taken_first_and_what_came_first_of_equals():
    queue = queue_of(actors=4, batch=2)
    for actor, version in ((3, 12), (0, 11), (2, 10), (1, 11)):
        arrive(queue, actor, 1, version)
    assert [each.content[0] for each in queue.take()] == [2, 0]
    assert [each.content[0] for each in queue.take()] == [1, 3]
    assert len(queue) == 0


def test_a_batch_needs_all_its_unrolls():
    queue = queue_of(batch=2)
    assert not queue.ready()
    arrive(queue, 0, 1, 10)
    assert not queue.ready()
    arrive(queue, 0, 2, 10)
    assert queue.ready()


def test_an_actor_may_begin_one_more_for_each_that_was_learnt_from():
    queue = queue_of(in_flight=2)
    assert queue.permits() == {0: (0, 2, 10), 1: (0, 2, 10)}
    arrive(queue, 1, 1, 10)
    queue.take()
    assert queue.permits()[1] == (0, 2, 10), "it is taken, and not yet learnt from"
    queue.learnt(11)
    assert queue.permits() == {0: (0, 2, 10), 1: (0, 3, 11)}


def test_no_version_is_made_that_would_leave_an_unroll_too_old():
    queue = queue_of(actors=2, in_flight=1, max_lag=1)
    arrive(queue, 0, 1, 10)
    assert queue.ready()  # actor 1 has begun with 10, and will be learnt from at 11
    queue.take()
    queue.learnt(11)
    arrive(queue, 0, 2, 11)
    assert not queue.ready(), "at 12 what actor 1 has begun would be two versions old"
    arrive(queue, 1, 1, 10)
    assert queue.ready()
    assert [each.content[0] for each in queue.take()] == [1]
    assert queue.lags() == [1]


@pytest.mark.parametrize("number", [1, 3])
def test_an_unroll_that_came_before_or_is_not_the_next_one_is_refused(number):
    queue = queue_of(in_flight=4)
    arrive(queue, 0, 1, 10)
    with pytest.raises(TaskError, match=f"unroll {number} of actor 0 arrived when 2 was expected"):
        arrive(queue, 0, number, 10)


def test_nobody_waits_for_what_a_replaced_actor_had_begun():
    queue = queue_of(actors=2, in_flight=1, max_lag=1)
    arrive(queue, 0, 1, 10)
    queue.take()
    queue.learnt(11)
    arrive(queue, 0, 2, 11)
    assert not queue.ready()
    queue.joined(1, 1)
    assert queue.ready() and queue.permits()[1] == (1, 1, 11)


def test_what_a_replaced_actor_has_sent_is_learnt_from_and_counts_as_its_own():
    queue = queue_of(actors=1, in_flight=2)
    arrive(queue, 0, 1, 10)
    queue.joined(0, 1)
    assert queue.permits()[0] == (1, 1, 10), "one of two is still here"
    (taken,) = queue.take()
    assert taken.content == (0, 0, 1)
    queue.learnt(11)
    assert queue.permits()[0] == (1, 2, 11)
    arrive(queue, 0, 1, 10, incarnation=1)


def test_unrolls_of_weights_of_another_learner_are_learnt_from_without_a_lag():
    queue = UnrollQueue([0], 1, 2, 5, version=1 << 32, session=1)
    arrive(queue, 0, 7, 900, session=0)
    arrive(queue, 0, 8, 900, session=0)
    assert queue.permits()[0][1] == 2
    queue.take()
    assert queue.lags() == []
    queue.learnt((1 << 32) + 1)
    assert queue.permits()[0][1] == 2, "they were not among those that it permitted"


@dataclass
class World:
    """Actors, a learner and what is on the way between them, each at a speed of its own."""

    rng: random.Random
    queue: UnrollQueue
    actors: int
    speeds: list[float]
    kills: float = 0.0
    views: list = field(default_factory=list)
    seen: Counter = field(default_factory=Counter)
    most: int = 0
    batches: int = 0

    def __post_init__(self):
        self.published = [(self.queue.permits(), self.queue.version)]
        self.views = [
            {"permit": 0, "weights": 0, "begun": 0, "life": 0, "busy": None, "out": deque()}
            for _ in range(self.actors)
        ]

    def moves(self):
        """Return what can happen next, with how likely that is."""
        found = []
        newest = len(self.published) - 1
        for actor, view in enumerate(self.views):
            speed = self.speeds[actor]
            for kind in ("permit", "weights"):
                if view[kind] < newest:
                    found.append((1.0, self._hear, actor, kind))
            life, permitted, least = self.published[view["permit"]][0][actor]
            version = self.published[view["weights"]][1]
            may = life == view["life"] and view["begun"] < permitted and version >= least
            if view["busy"] is not None:
                found.append((speed, self._finish, actor))
            elif may:
                found.append((10.0, self._begin, actor, version))
            if view["out"]:
                found.append((2.0, self._deliver, actor))
            if self.kills:
                found.append((self.kills, self._kill, actor))
        if self.queue.ready():
            found.append((self.speeds[-1], self._learn))
        return found

    def run(self, events):
        for _ in range(events):
            moves = self.moves()
            likely = [move[0] for move in moves]
            assert any(move[1] != self._kill for move in moves), "everybody waits"
            _, act, *args = self.rng.choices(moves, likely)[0]
            act(*args)

    def _hear(self, actor, kind):
        view = self.views[actor]
        view[kind] = self.rng.randint(view[kind] + 1, len(self.published) - 1)

    def _begin(self, actor, version):
        view = self.views[actor]
        view["begun"] += 1
        view["busy"] = view["begun"], version

    def _finish(self, actor):
        view = self.views[actor]
        view["out"].append((view["life"], *view["busy"]))
        view["busy"] = None

    def _deliver(self, actor):
        life, number, version = self.views[actor]["out"].popleft()
        arrive(self.queue, actor, number, version, life)

    def _kill(self, actor):
        view = self.views[actor]
        while view["out"] and self.rng.random() < 0.7:  # the rest is lost on the way
            self._deliver(actor)
        newest = len(self.published) - 1
        view.update(busy=None, begun=0, life=view["life"] + 1, permit=newest, weights=newest)
        view["out"].clear()
        self.queue.joined(actor, view["life"])
        self.published.append((self.queue.permits(), self.queue.version))

    def _learn(self):
        taken = self.queue.take()
        self.seen.update(each.content for each in taken)
        self.most = max([self.most, *self.queue.lags()])
        self.batches += 1
        self.queue.learnt(self.queue.version + 1)
        self.published.append((self.queue.permits(), self.queue.version))


CASES = [
    (actors, batch, least + more)
    for actors, batch, least in [(1, 1, 0), (1, 3, 0), (2, 1, 1), (3, 2, 1), (4, 1, 3), (5, 8, 1)]
    for more in (0, 1, 5)
]


@pytest.mark.parametrize("slow", ["nobody", "the learner", "one actor", "all actors"])
@pytest.mark.parametrize(("actors", "batch", "max_lag"), CASES)
@pytest.mark.parametrize("kills", [0.0, 0.02])
def test_the_bound_holds_and_nobody_waits_for_ever(actors, batch, max_lag, slow, kills):
    cfg = IMPALAConfig(batch_unrolls=batch, max_lag=max_lag)
    cfg.check_run(actors + 2, 8)
    rng = random.Random(f"{actors} {batch} {max_lag} {slow}")
    in_flight = cfg.in_flight(actors)
    queue = UnrollQueue(range(actors), batch, in_flight, max_lag, 1)
    speeds = [1.0] * actors + [5.0]
    if slow == "the learner":
        speeds[-1] = 0.1
    elif slow == "one actor":
        speeds[0] = 0.1
    elif slow == "all actors":
        speeds[:-1] = [0.1] * actors
    world = World(rng, queue, actors, speeds, kills)
    world.run(900)
    assert world.most <= max_lag
    assert max(world.seen.values()) == 1, "one was learnt from twice"
    assert world.batches > 10
    world.run(900)
    assert world.most <= max_lag and world.batches > 15


def test_without_a_bound_a_slow_actor_falls_behind_as_far_as_it_likes():
    queue = UnrollQueue(range(3), 1, 2, None, 1)
    world = World(random.Random(0), queue, 3, [0.02, 1.0, 1.0, 5.0])
    world.run(3_000)
    assert world.most > 20


def test_who_leaves_is_not_waited_for_and_what_it_sent_is_learnt_from():
    queue = queue_of(actors=2, in_flight=1, max_lag=1)
    arrive(queue, 0, 1, 10)
    queue.take()
    queue.learnt(11)
    arrive(queue, 0, 2, 11)
    assert not queue.ready(), "at 12 what actor 1 has begun would be two versions old"
    queue.left(1)
    assert queue.ready()
    arrive(queue, 1, 1, 10)  # it was on the way when the actor left
    queue.left(1)
    assert [each.content[0] for each in queue.take()] == [1]


def test_a_newcomer_begins_with_the_present_weights():
    queue = queue_of(actors=1, in_flight=2)
    assert queue.permits().keys() == {0}
    queue.joined(5, 0)
    assert queue.permits()[5] == (0, 2, 10)


def test_fewer_actors_are_each_allowed_more_so_that_a_batch_comes_together():
    queue = queue_of(actors=4, batch=4, in_flight=1)
    for actor in (1, 2, 3):
        queue.left(actor)
    queue.allow(4)
    assert queue.permits() == {0: (0, 4, 10)}
    queue.joined(1, 1)
    queue.allow(2)
    assert queue.permits() == {0: (0, 4, 10), 1: (1, 4, 10)}, "what was permitted stays so"
    for number in (1, 2, 3, 4):
        arrive(queue, 0, number, 10)
    queue.take()
    queue.learnt(11)
    assert queue.permits()[0] == (0, 6, 11), "two more, as it is allowed two from now on"


@pytest.mark.parametrize("seed", range(40))
def test_actors_that_come_and_go_keep_the_bound_and_nobody_waits_for_ever(seed):
    rng = random.Random(seed)
    most, batch = rng.randint(1, 6), rng.randint(1, 5)
    least_lag = -(-most * -(-batch // most) // batch) - 1
    cfg = IMPALAConfig(batch_unrolls=batch, max_lag=least_lag + rng.randint(0, 3))
    here = set(range(rng.randint(1, most)))
    incarnation = dict.fromkeys(range(most), 0)
    begun = Counter()
    flying = {actor: deque() for actor in range(most)}
    queue = UnrollQueue(sorted(here), batch, cfg.in_flight(len(here)), cfg.max_lag, 1)
    learnt = idle = 0
    while learnt < 150:
        if rng.random() < 0.05:
            actor = rng.randrange(most)
            if actor not in here:
                here.add(actor)
                queue.joined(actor, incarnation[actor])
            elif len(here) > 1:
                here.discard(actor)
                queue.left(actor)
                incarnation[actor] += 1
                flying[actor].clear()
            queue.allow(cfg.in_flight(len(here)))
        for actor, (process, permitted, least) in queue.permits().items():
            assert process == incarnation[actor]
            while begun[actor, process] < permitted:
                begun[actor, process] += 1
                version = rng.randint(least, queue.version)
                if flying[actor]:
                    version = max(version, flying[actor][-1][1])
                flying[actor].append((begun[actor, process], version))
        able = [actor for actor in sorted(here) if flying[actor]]
        if able and rng.random() < 0.7:
            actor = rng.choice(able)
            number, version = flying[actor].popleft()
            arrive(queue, actor, number, version, incarnation[actor])
        if queue.ready():
            queue.take()
            assert all(lag <= cfg.max_lag for lag in queue.lags())
            queue.learnt(queue.version + 1)
            learnt, idle = learnt + 1, 0
        else:
            idle += 1
        assert idle < 1_000, "the learner waits for ever"
