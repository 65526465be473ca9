"""Workers on slots: what they compute together is what one would compute over all slots at once.

The teams here have their members in threads of one process, so that a member can die at any point
that a test can name. That real processes do the same is in tests/recipes/test_ppo.py.
"""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from muster.algos.ppo import PPO
from muster.algos.ppo_config import PPOConfig
from muster.data.slots import SlotPlan
from muster.envs import make_envs
from muster.nets.policy_net import STATS
from muster.workers import slot_worker
from muster.workers.slot_worker import SlotWorker

pytestmark = pytest.mark.timeout(600)

SEED, ENVS = 5, 8
SMALL = {"rollout": 16, "epochs": 2, "minibatches": 2, "slots": 4, "hidden": (8,), "horizon": 4096}
NORMALIZED = {"normalize_obs": True, "normalize_reward": True}


class Death(BaseException):
    """What a member dies of."""


class Memory:
    """What the members of one team have in common."""

    def __init__(self, size):
        self.size, self.arrays = size, {}
        self.arrivals, self.notes = [0] * size, [(0,) * 7] * size
        self.changed = threading.Condition()
        self.failed = False
        self.dies = lambda index, when: False


class Member:
    """A `Team` for one thread."""

    def __init__(self, memory, index, fields):
        self.index, self.size, self._memory = index, memory.size, memory
        self.resumed = memory.arrivals[index] > 0
        with memory.changed:
            for name, (shape, dtype) in fields.items():
                memory.arrays.setdefault(name, np.zeros(shape, dtype))

    is_spread = moved = is_alone = False

    def __getitem__(self, name):
        return self._memory.arrays[name]

    def show(self, name, index=...):
        self[name][index]  # exists

    @property
    def arrivals(self):
        return self._memory.arrivals[self.index]

    @property
    def note(self):
        return self._memory.notes[self.index]

    def meet(self, note):
        memory = self._memory
        if memory.dies(self.index, "before arriving"):
            raise Death
        with memory.changed:
            memory.notes[self.index] = (*note, *(0,) * (7 - len(note)))
            memory.arrivals[self.index] += 1
            memory.changed.notify_all()
        if memory.dies(self.index, "after arriving"):
            raise Death
        self.wait()

    def wait(self):
        memory = self._memory
        with memory.changed:
            there = memory.changed.wait_for(
                lambda: memory.failed or min(memory.arrivals) >= self.arrivals, 30
            )
        assert there and not memory.failed, "somebody did not come"


class Team:
    """Workers in threads.

    Args:
        members: How many.
        env: Id of the environment.
        cfg: Options of PPO.
    """

    def __init__(self, monkeypatch, members, env="CartPole-v1", **cfg):
        self.memory, self.env = Memory(members), env
        self.cfg = PPOConfig(**{**SMALL, **cfg})
        self._here = threading.local()
        self._making = threading.Lock()
        monkeypatch.setattr(
            slot_worker, "Team", lambda fields: Member(self.memory, self._here.index, fields)
        )
        monkeypatch.setattr(slot_worker, "members", lambda: members)
        with make_envs(env) as envs:
            self._spaces = envs.single_observation_space, envs.single_action_space

    def worker(self, index):
        with self._making:
            self._here.index = index
            return SlotWorker(PPO(self.cfg, *self._spaces, SEED), self.env, ENVS, SEED)

    def live(self, index, loops, prepare=None):
        """Be a member from its birth, through any number of deaths, to the end."""
        try:
            while True:
                try:
                    worker = self.worker(index)
                    if prepare is not None:
                        prepare(worker)
                    metrics = []
                    for loop in range(worker.rollout, loops):
                        worker.collect(loop)
                        metrics.append(worker.learn(loop))
                        assert worker.agree(loop, loop == loops - 1) == (loop == loops - 1)
                    worker.close()
                    return worker, metrics
                except Death:
                    if worker._ahead is not None:  # a real death ends this thread, too
                        worker._ahead.join()
        except BaseException:
            with self.memory.changed:
                self.memory.failed = True
                self.memory.changed.notify_all()
            raise

    def run(self, loops, prepare=None):
        """Return all workers after so many loops, and the metrics of each."""
        size = self.memory.size
        with ThreadPoolExecutor(size) as pool:
            each = [pool.submit(self.live, index, loops, prepare) for index in range(size)]
            return list(zip(*[one.result() for one in each], strict=True))

    def by_phases(self, loops, prepared=None):
        """Go through loops phase by phase, and look at the memory when all are prepared."""
        size = self.memory.size
        with ThreadPoolExecutor(size) as pool:

            def everybody(do):
                return list(pool.map(do, range(size)))

            workers = everybody(self.worker)
            for loop in range(loops):
                everybody(lambda index, loop=loop: workers[index].collect(loop))
                everybody(lambda index, loop=loop: workers[index].group.prepare(loop))
                if prepared is not None:
                    prepared(loop, workers)
                everybody(lambda index, loop=loop: workers[index].group.learn(loop))
                everybody(lambda index, loop=loop: workers[index].agree(loop, False))
        return workers

    def bits(self):
        """Return all that members have in common, but for what is each one's own.

        Who dies while it collects has the advantages of the rollout before computed again, from
        slots that hold half of the next one by then. Nobody reads them any more.
        """
        own = {"weights", "sums", "version", "advantage_books", "started"}
        return {n: a.tobytes() for n, a in self.memory.arrays.items() if n not in own}


def policy(worker):
    return worker.agent.policy_sha256()


# ---- against plain NumPy


def reference_advantages(arrays, cfg, reward):
    """GAE in float64, over all environments at once."""
    value = arrays["value"].astype(np.float64)
    ended, cut = arrays["terminated"], arrays["truncated"]
    advantage, carried = np.zeros(reward.shape), np.zeros(reward.shape[1])
    for t in reversed(range(len(reward))):
        following = np.where(cut[t], arrays["final_value"][t], value[t + 1])
        following = np.where(ended[t], 0.0, following)
        delta = reward[t] + cfg.gamma * following - value[t]
        carried = delta + cfg.gamma * cfg.gae_lambda * np.where(ended[t] | cut[t], 0.0, carried)
        advantage[t] = carried
    return advantage


@pytest.mark.parametrize("members", [1, 2, 4])
@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1", "MountainCar-v0"])
def test_advantages_and_reward_scale_are_those_of_numpy_over_all_slots(monkeypatch, env, members):
    team = Team(monkeypatch, members, env, rollout=64, normalize_reward=True)
    shared, cfg = team.memory.arrays, team.cfg
    seen, checked, carried = [], [], np.zeros(ENVS)

    def check(loop, workers):
        nonlocal carried
        names = ("reward", "value", "terminated", "truncated", "final_value", "advantage", "target")
        arrays = {name: shared[name][0] for name in names}
        reward = arrays["reward"].astype(float)
        ended, cut = arrays["terminated"], arrays["truncated"]
        for t in range(len(reward)):
            carried = carried * cfg.gamma + reward[t]
            seen.append(carried)
            carried = np.where(ended[t] | cut[t], 0.0, carried)
        count, mean, m2 = shared["reward_scale"][(loop + 1) % 2]
        assert count == np.size(seen)
        assert np.allclose([mean, m2 / count], [np.mean(seen), np.var(seen)], rtol=1e-9)
        wanted = reference_advantages(arrays, cfg, reward / np.sqrt(np.var(seen) + 1e-8))
        target = wanted + arrays["value"][:-1]
        assert np.allclose(arrays["target"], target, rtol=1e-4, atol=1e-4)
        normal = (wanted - wanted.mean()) / wanted.std()
        assert np.allclose(arrays["advantage"], normal, rtol=1e-3, atol=1e-3)
        assert abs(arrays["advantage"].mean(dtype=float)) < 1e-5
        assert arrays["advantage"].std(dtype=float) == pytest.approx(1, abs=1e-4)
        only_cut = cut & ~ended
        assert not arrays["final_value"][~only_cut].any()
        assert (arrays["final_value"][only_cut] != 0).all()
        checked.append((ended.any(), only_cut.any()))

    team.by_phases(5, check)
    ended, cut = np.any(checked, axis=0)
    assert ended if env == "CartPole-v1" else cut, "no episode ended: half of it was not tried"


def test_without_normalising_advantages_and_rewards_are_as_they_are(monkeypatch):
    team = Team(monkeypatch, 2, normalize_advantage=False)
    shared = team.memory.arrays

    def check(loop, workers):
        arrays = {name: shared[name][0] for name in names}
        wanted = reference_advantages(arrays, team.cfg, arrays["reward"].astype(float))
        assert np.allclose(arrays["advantage"], wanted, rtol=1e-4, atol=1e-4)
        assert not shared["reward_scale"].any()

    names = ("reward", "value", "terminated", "truncated", "final_value", "advantage")
    team.by_phases(2, check)


@pytest.mark.parametrize("options", [{}, NORMALIZED, {"shared": True, "value_clip": 0.2}], ids=str)
@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_the_sum_of_the_slots_gradients_is_the_gradient_of_the_whole_minibatch(
    monkeypatch, env, options
):
    team = Team(monkeypatch, 1, env, **options)
    compared = []

    def spy(worker):
        net, agent = worker.agent.net, worker.agent
        gradient, step = net.gradient, agent.step
        asked = []

        def noted(rollout, rows, terms, grad, stats):
            asked.append((rollout, rows.copy(), terms))
            gradient(rollout, rows, terms, grad, stats)

        def compare(total):
            rollout, _, terms = asked[0]
            rows = np.concatenate([rows for _, rows, _ in asked])
            assert len(rows) == len(set(rows.tolist())) == 1 / terms.scale
            whole, stats = np.empty_like(total), np.empty(len(STATS))
            gradient(rollout, rows, terms, whole, stats)
            assert np.abs(whole - total).max() <= 2e-6 * max(1, np.abs(whole).max())
            compared.append(rows)
            asked.clear()
            return step(total)

        net.gradient, agent.step = noted, compare

    team.run(3, spy)
    assert len(compared) == 3 * 4
    for epoch in range(0, len(compared), 2):
        rows = np.concatenate(compared[epoch : epoch + 2])
        assert sorted(rows.tolist()) == list(range(16 * ENVS)), "an epoch is every row once"
    assert not np.array_equal(compared[0], compared[2]), "two epochs had the same order"


@pytest.mark.parametrize("options", [{}, NORMALIZED], ids=str)
@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_the_first_ratio_of_every_rollout_is_one(monkeypatch, env, options):
    team = Team(monkeypatch, 2, env, lr=0.01, **options)
    fractions, later = [], []

    def spy(worker):
        net, gradient = worker.agent.net, worker.agent.net.gradient
        done = {"loop": -1}
        learn = worker.group.learn

        def begin(loop):
            done["loop"], done["version"] = loop, worker.agent.train_iter
            return learn(loop)

        def look(rollout, rows, terms, grad, stats):
            found, strict = np.empty(len(STATS)), terms._replace(clip=1e-6)
            gradient(rollout, rows, strict, np.empty_like(grad), found)
            is_first = worker.agent.train_iter == done["version"]
            (fractions if is_first else later).append(found[STATS.index("clip_fraction")])
            if is_first:
                assert abs(found[STATS.index("approx_kl")]) < 1e-6
            gradient(rollout, rows, terms, grad, stats)

        worker.group.learn, net.gradient = begin, look

    team.run(4, spy)
    assert len(fractions) == 4 * 4 and not any(fractions), "a ratio was not within 1e-6 of 1"
    assert any(later), "no ratio ever changed: nothing was tried"


# ---- any number of members


@pytest.fixture(scope="module")
def alone():
    """What one member comes to, by environment and options."""
    known = {}

    def _alone(monkeypatch, env, loops, **options):
        key = (env, loops, *sorted(options.items()))
        if key not in known:
            team = Team(monkeypatch, 1, env, **options)
            (worker,), (metrics,) = team.run(loops)
            known[key] = policy(worker), team.bits(), metrics
        return known[key]

    return _alone


KINDS = [
    ("CartPole-v1", {}),
    ("CartPole-v1", {"target_kl": 1e-4, "lr": 0.01, **NORMALIZED}),
    ("Pendulum-v1", NORMALIZED),
    ("Pendulum-v1", {"activation": "relu", "shared": True, "hidden": (8, 8)}),
    ("Pendulum-v1", {"lag": 1, **NORMALIZED}),
    ("CartPole-v1", {"model": "lstm", "sequence": 8, **NORMALIZED}),
    ("Pendulum-v1", {"model": "gru", "sequence": 8, "hidden": (12, 20), **NORMALIZED}),
]


@pytest.mark.parametrize(("env", "options"), KINDS, ids=str)
@pytest.mark.parametrize("members", [2, 3, 4])
def test_members_in_any_number_come_to_the_same_bits(monkeypatch, alone, env, options, members):
    wanted, bits, numbers = alone(monkeypatch, env, 4, **options)
    team = Team(monkeypatch, members, env, **options)
    workers, metrics = team.run(4)
    assert {policy(worker) for worker in workers} == {wanted}
    assert all(each == numbers for each in metrics)
    assert {name for name, found in team.bits().items() if found != bits[name]} == set()


SHARES = {
    "the other way round": lambda member: [range(2, 4), range(0, 2)][member],
    "one and three": lambda member: [range(0, 1), range(1, 4)][member],
    "three and one, swapped": lambda member: [range(3, 4), range(0, 3)][member],
}


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize(("env", "options"), KINDS[1:3], ids=str)
def test_it_does_not_matter_who_has_which_slot(monkeypatch, alone, env, options, share):
    wanted, bits, _ = alone(monkeypatch, env, 4, **options)
    monkeypatch.setattr(SlotPlan, "share", lambda self, member, members: SHARES[share](member))
    team = Team(monkeypatch, 2, env, **options)
    workers, _ = team.run(4)
    assert {policy(worker) for worker in workers} == {wanted}
    assert team.bits() == bits


@pytest.mark.parametrize("members", [1, 2, 4])
def test_all_members_stop_learning_at_the_same_epoch(monkeypatch, members):
    team = Team(monkeypatch, members, epochs=10, target_kl=2e-3, lr=3e-3)
    workers, metrics = team.run(6)
    updates = [[each["updates"] for each in one] for one in metrics]
    assert all(one == updates[0] for one in updates)
    assert all(count % 2 == 0 for count in updates[0]), "it stopped within an epoch"
    assert any(count < 20 for count in updates[0]), "it never stopped"
    assert len(set(updates[0])) > 1, "it always stopped at the same epoch"
    assert {worker.agent.train_iter for worker in workers} == {int(sum(updates[0]))}


def test_learning_goes_on_while_the_divergence_is_small(monkeypatch):
    team = Team(monkeypatch, 2, epochs=3, target_kl=1e6)
    _, metrics = team.run(2)
    assert [each["updates"] for each in metrics[0]] == [6, 6]


@pytest.mark.parametrize("members", [1, 2, 4])
def test_the_normaliser_knows_all_rows_so_far_and_is_the_same_everywhere(monkeypatch, members):
    team = Team(monkeypatch, members, "Pendulum-v1", rollout=32, **NORMALIZED)
    seen = []

    def look(loop, workers):
        known = [worker.agent.normalizer.known() for worker in workers]
        assert all(each.tobytes() == known[0].tobytes() for each in known)
        if seen:  # what acts knows the rollouts before
            rows = np.concatenate(seen)
            count, mean, var = known[0][0], known[0][1:4], known[0][4:]
            assert count == len(rows)
            assert np.allclose(mean, rows.mean(axis=0), rtol=1e-10, atol=1e-12)
            assert np.allclose(var, rows.var(axis=0), rtol=1e-10, atol=1e-12)
        else:
            assert known[0][0] == 0
        obs = team.memory.arrays["obs"][0][:32]
        seen.append(obs.reshape(-1, 3).astype(float))

    team.by_phases(5, look)


# ---- members that die


def deadly(at, where):
    """Return a function that says once, at the n-th time and place, that the member dies."""
    left = {"n": at}

    def dies(index, when):
        if index != 1 or when != where:
            return False
        left["n"] -= 1
        return left["n"] == -1

    return dies


DEADLY = [
    {"target_kl": 1e-4, "lr": 0.01, **NORMALIZED},
    NORMALIZED,
    {"lag": 1, **NORMALIZED},
    {"model": "lstm", "sequence": 8, **NORMALIZED},
]


@pytest.mark.parametrize("where", ["before arriving", "after arriving"])
@pytest.mark.parametrize(
    "options",
    [*DEADLY[:3], pytest.param(DEADLY[3], marks=pytest.mark.slow)],
    ids=["stops early", "all epochs", "lag", "lstm"],
)
def test_a_member_may_die_at_every_meeting_there_is(monkeypatch, alone, where, options):
    loops = 3
    wanted, bits, numbers = alone(monkeypatch, "CartPole-v1", loops, **options)
    at = deaths = 0
    while True:
        team = Team(monkeypatch, 2, "CartPole-v1", **options)
        team.memory.dies = deadly(at, where)
        workers, metrics = team.run(loops)
        assert {policy(worker) for worker in workers} == {wanted}, at
        wrong = {name for name, found in team.bits().items() if found != bits[name]}
        assert wrong == set(), at
        assert metrics[1] == numbers[loops - len(metrics[1]) :], at
        if len(metrics[1]) == loops and at > 10 * loops:
            break
        deaths += 1
        at += 3 if "model" in options else 1  # by autograd it takes longer
    assert deaths >= loops


PLACES = ["in the environment", "at a gradient", "after a step that nobody saw"]


@pytest.mark.parametrize("place", PLACES)
def test_a_member_may_die_anywhere_between_two_meetings(monkeypatch, alone, place):
    loops = 3
    wanted, bits, _ = alone(monkeypatch, "CartPole-v1", loops, **NORMALIZED)
    for at in (0, 1, 3, 5, 9, 11, 17, 33):
        team = Team(monkeypatch, 2, "CartPole-v1", **NORMALIZED)
        dies = deadly(at, place)
        died = []

        def dangerous(do, index, place=place, dies=dies, died=died):
            def _do(*args):
                found = do(*args)
                if dies(index, place):
                    died.append(place)
                    raise Death
                return found

            return _do

        def arm(worker, dangerous=dangerous, place=place):
            index = worker.team.index
            if place == "in the environment":
                worker._envs.step = dangerous(worker._envs.step, index)
            elif place == "at a gradient":
                worker.agent.net.gradient = dangerous(worker.agent.net.gradient, index)
            else:
                worker.agent.step = dangerous(worker.agent.step, index)

        workers, _ = team.run(loops, arm)
        assert {policy(worker) for worker in workers} == {wanted}, at
        assert team.bits() == bits, at
        assert died or at > 10


def test_both_members_may_die_one_after_the_other(monkeypatch, alone):
    wanted, bits, _ = alone(monkeypatch, "Pendulum-v1", 4, **NORMALIZED)
    rng = np.random.default_rng(2)
    for _ in range(15):
        plan = {index: sorted(rng.choice(28, 3, replace=False).tolist()) for index in (0, 1)}
        team = Team(monkeypatch, 2, "Pendulum-v1", **NORMALIZED)
        count = {0: 0, 1: 0}

        def dies(index, when, count=count, plan=plan):
            count[index] += 1
            return count[index] // 2 in plan[index] and count[index] % 2 == index

        team.memory.dies = dies
        workers, _ = team.run(4)
        assert {policy(worker) for worker in workers} == {wanted}, plan
        assert team.bits() == bits
