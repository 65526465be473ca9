"""Workers and learners: seeds, ends of episodes, budgets, failures, and that all work counts."""

import sys
import time
from functools import partial

import counting_env
import numpy as np
import pytest
from counting_env import Counting
from gymnasium import spaces

from muster.actors import (
    BlockError,
    Learner,
    ParameterServer,
    ReplayBuffer,
    RolloutWorker,
    finish,
)
from muster.actors.calls import Call
from muster.actors.rollout import Roller, limited
from muster.algos import DQN, DQNConfig
from muster.envs import make_envs
from muster.errors import OptionError

OBS, ACTIONS = spaces.Box(-np.inf, np.inf, (2,)), spaces.Discrete(3)
CFG = DQNConfig(hidden=(16,), target_update=10)


class Sleepy:
    """A policy that notes which weights it acted on in its actions."""

    def __init__(self, obs_space, action_space, seed):
        self.action = 0

    def act(self, obs, epsilon=0.0):
        return np.full(len(obs), self.action)

    def load_policy(self, weights):
        self.action = int(weights["action"][0])


def dqn(obs_space=OBS, action_space=ACTIONS, seed=0):
    return DQN(CFG, obs_space, action_space, seed)


class Breaking(DQN):
    def gradient(self, batch):
        raise ArithmeticError("the learner cannot count")


@pytest.fixture(scope="module", autouse=True)
def actors_know_this_module(ray):
    """Send what is defined in tests with the call: actors cannot import it."""
    modules = sys.modules[__name__], counting_env
    for each in modules:
        ray.cloudpickle.register_pickle_by_value(each)
    yield
    for each in modules:
        ray.cloudpickle.unregister_pickle_by_value(each)


def rows(buffer, count):
    batch = buffer.sample_batch(4 * count)
    return {tuple(row) for row in np.c_[batch.obs, batch.reward, batch.discount].tolist()}


def test_a_cut_at_max_ep_len_is_no_terminal_and_hides_none():
    for limit, ends in ((10, [10]), (4, []), (None, [10]), (40, [10])):
        with make_envs(limited(Counting, limit), 1) as envs:
            envs.reset()
            seen = [envs.step(np.array([0]))[2:4] for _ in range(10)]
        assert [k + 1 for k, (terminated, _) in enumerate(seen) if terminated] == ends
        cuts = [k + 1 for k, (_, truncated) in enumerate(seen) if truncated]
        assert cuts == {10: [10], 4: [4, 8], None: [], 40: []}[limit]


def test_workers_have_seeds_of_their_own_send_all_steps_and_act_on_new_weights(ray):
    server = ParameterServer({"action": np.array([1.0])})
    buffer = ReplayBuffer(OBS, ACTIONS, 1000, shards=1)
    workers = [
        RolloutWorker(
            Counting, Sleepy, server, buffer, worker=k, seed=5, max_ep_len=7, num_cpus=0.5
        )
        for k in range(2)
    ]
    reports = finish([worker.rollout(100) for worker in workers], timeout=300)
    assert [report.steps for report in reports] == [100, 100]
    assert reports[0].lengths == [7] * 14 and reports[0].returns == [7.0] * 14
    assert buffer.get_counts() | {"sampled": 0} == {
        "inserted": 200,
        "confirmed": 200,
        "sampled": 0,
        "lost_shards": 0,
        "stored": [200],
    }
    starts = {row[0] for row in rows(buffer, 1000)}
    assert len(starts) == 2 * 15  # no two episodes, of one worker or of two, begin alike
    assert {row[2] for row in rows(buffer, 1000)} == {1.0}
    assert {row[3] for row in rows(buffer, 1000)} == {np.float32(0.99)}  # all of them go on
    server.push({"action": np.array([2.0])})
    assert finish([workers[0].rollout(150)], timeout=300)[0].version == 2
    assert 2.0 in {row[2] for row in rows(buffer, 1000)}


@pytest.mark.slow
def test_random_steps_are_counted_over_all_workers(ray):
    server = ParameterServer({"action": np.array([1.0])})
    buffer = ReplayBuffer(OBS, ACTIONS, 1000)
    for number, steps in ((0, 200), (1, 100)):  # here, as no process of their own is needed
        worker = Roller(Counting, Sleepy, number, 0, 1, 50, 100, None, None, 1)
        assert worker.rollout(steps, ray.get(ray.put(server)), ray.get(ray.put(buffer))).steps == (
            steps
        )
    batch = buffer.sample_batch(6000)
    at_random = batch.index < 100
    assert set(batch.reward[at_random]) == {0.0, 1.0, 2.0}
    assert set(batch.reward[~at_random]) == {1.0}


def test_a_worker_that_raises_ends_the_wait_with_its_message(ray):
    server = ParameterServer({"action": np.array([1.0])})
    buffer = ReplayBuffer(OBS, ACTIONS, 1000)
    good, bad = (
        RolloutWorker(
            partial(Counting, breaks_at=at), Sleepy, server, buffer, worker=k, num_cpus=0.5
        )
        for k, at in enumerate([None, 120])
    )
    with pytest.raises(BlockError, match="the cart fell off the table") as caught:
        finish([good.rollout(10**9)], watch=[bad.rollout(500)], timeout=300)
    assert caught.value.block == "rollout worker 1"
    assert "counting_env.py" in caught.value.remote_traceback
    good.close()


@pytest.mark.slow
def test_a_worker_whose_process_dies_goes_on_with_what_is_left(ray):
    server = ParameterServer({"action": np.array([1.0])})
    buffer = ReplayBuffer(OBS, ACTIONS, 100_000)
    worker = RolloutWorker(Counting, Sleepy, server, buffer, max_restarts=1, num_cpus=0.5)
    rollout = worker.rollout(3000)
    deadline = time.monotonic() + 300
    while buffer.rollout_steps < 500 and time.monotonic() < deadline:
        time.sleep(0.02)
    ray.kill(worker.actor, no_restart=False)
    (report,) = finish([rollout], timeout=300)
    counts = buffer.get_counts()
    assert report.steps == counts["confirmed"] == counts["inserted"] == 3000


@pytest.mark.slow
def test_several_learners_change_one_set_of_weights_and_no_gradient_is_lost(ray):
    agent = dqn()
    server = ParameterServer(agent.parts()["policy"], lr=1e-3, max_lag=4)
    buffer = ReplayBuffer(
        OBS, ACTIONS, 5000, shards=2, prioritized=True, samples_per_insert=4.0, min_size=100
    )
    workers = [RolloutWorker(Counting, dqn, server, buffer, epsilon=lambda step: 0.5)]
    learners = [
        Learner(dqn, server, buffer, learner=k, batch_size=20, num_cpus=1) for k in range(2)
    ]
    learning = [learner.train() for learner in learners]
    finish([worker.rollout(600) for worker in workers], watch=learning, timeout=80)
    buffer.seal()
    reports = finish(learning, timeout=300)
    counts = server.counts()
    applied = {report.learner: report.updates for report in reports}
    # 4 samples for each of 500 transitions, less than a batch of each learner is left over.
    assert 4 * 500 / 20 - 2 <= sum(applied.values()) <= 4 * 500 / 20
    assert counts["applied"] == applied and min(applied.values()) > 0
    assert counts["version"] == 1 + counts["gradients"] == 1 + sum(applied.values())
    assert counts["repeated"] == 0 and 0 <= counts["lag_min"] <= counts["lag_max"] <= 4
    assert all(0 <= report.data_lag[0] <= report.data_lag[2] for report in reports)
    assert buffer.get_counts()["sampled"] == 20 * sum(applied.values())


@pytest.mark.slow
def test_a_learner_that_raises_says_so_though_it_waits_for_nothing_else(ray):
    server = ParameterServer(dqn().parts()["policy"], lr=1e-3)
    buffer = ReplayBuffer(OBS, ACTIONS, 1000, samples_per_insert=1.0, min_size=10, error_buffer=50)
    worker = RolloutWorker(Counting, dqn, server, buffer, num_cpus=0.5)
    broken = Learner(partial(Breaking, CFG, OBS, ACTIONS), server, buffer, batch_size=40)
    with pytest.raises(BlockError, match="learner 0 raised ArithmeticError: the learner cannot"):
        finish([worker.rollout(10**6)], watch=[broken.train()], timeout=300)


def test_what_the_cluster_does_not_have_is_refused_at_once(ray):
    began = time.monotonic()
    with pytest.raises(OptionError, match=r"learner 0 needs .*1 GPU\n.* 0 GPUs"):
        Learner(dqn, None, None, num_gpus=1)
    with pytest.raises(OptionError, match=r"rollout worker 0 needs 60 CPUs\n.*has 6 CPUs"):
        RolloutWorker(Counting, Sleepy, None, None, num_cpus=60)
    with pytest.raises(OptionError, match="fragment=50"):
        RolloutWorker(Counting, Sleepy, None, None, fragment=10)
    assert time.monotonic() - began < 10


def test_an_actor_that_does_not_start_in_time_is_named(ray):
    never = ray.remote(lambda: time.sleep(60)).options(num_cpus=0).remote()
    with pytest.raises(BlockError, match=r"rollout worker 7 did not start within 0.5 s"):
        finish([Call("rollout worker 7", never, started=never)], start_within=0.5)
    ray.cancel(never, force=True)
