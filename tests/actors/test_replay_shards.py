"""Replay in shards: what goes in comes out, in proportion, and nobody is lost or overtaken."""

import threading
import time
from contextlib import suppress

import numpy as np
import pytest
from gymnasium import spaces

from muster.actors import BlockError, ReplayBuffer, ReplayEmptyError
from muster.data import StepBlock
from muster.errors import OptionError

BOX, TWO = spaces.Box(-1e9, 1e9, (1,)), spaces.Discrete(2)


def fragment(first, steps=50, envs=1, terminated=()):
    """Steps whose observation and reward are their number."""
    number = np.arange(first, first + steps, dtype=np.float32)[:, None].repeat(envs, 1)
    ends = np.isin(number, list(terminated))
    return StepBlock.of(
        obs=number[..., None],
        action=(number % 2).astype(np.int64),
        reward=number,
        next_obs=number[..., None] + 1,
        terminated=ends,
        truncated=np.zeros_like(ends),
    )


def eventually(condition, seconds=20):
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


def started(work):
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


@pytest.fixture(scope="module")
def one(ray):
    """A buffer of one shard, which some tests share; it is empty in the first of them."""
    return ReplayBuffer(BOX, TWO, 1000)


def test_an_empty_buffer_waits_or_says_so(one):
    began = time.monotonic()
    with pytest.raises(ReplayEmptyError, match="0 steps were stored"):
        one.sample_batch(8, timeout=0.2)
    assert time.monotonic() - began < 200, "it waits for steps, not for ever"

    def store_later():
        time.sleep(0.3)
        one.store(fragment(0))

    started(store_later)
    assert len(one.sample_batch(8).reward) == 8


def test_what_is_stored_is_sampled_with_its_version_and_names(ray):
    buffer = ReplayBuffer(BOX, TWO, 1000, shards=2, turn=1, gamma=0.5)
    for k in range(4):
        assert buffer.store(fragment(100 * k, terminated=[100 * k + 9]), version=k) == 50 * (k + 1)
    assert buffer.flush() == 200
    batch = buffer.sample_batch(400)
    assert np.array_equal(batch.obs[:, 0], batch.reward)
    assert np.array_equal(batch.next_obs[:, 0], batch.reward + 1)
    assert np.array_equal(batch.version, batch.reward.astype(int) // 100)
    assert np.array_equal(batch.discount == 0, batch.reward % 100 == 9)
    assert (batch.weight == 1).all()
    assert batch.obs.flags.writeable and batch.reward.flags.writeable
    plain = batch.as_dict()
    assert list(plain) == ["cur_states", "actions", "rewards", "next_states", "dones"]
    assert np.array_equal(plain["dones"] == 1, batch.reward % 100 == 9)
    counts = buffer.get_counts()
    assert counts["stored"] == [100, 100] and counts["sampled"] == 400 == 2 * len(buffer)


@pytest.mark.slow
def test_shards_that_are_unequal_are_drawn_from_as_one_buffer_would(ray):
    buffer = ReplayBuffer(BOX, TWO, 1000, shards=2, turn=1, seed=3)
    sizes = [50, 50, 50, 200]
    for k, steps in enumerate(sizes):
        buffer.store(fragment(1000 * k, steps))
    buffer.flush()
    assert sorted(buffer.get_counts()["stored"]) == [100, 250]
    drawn = np.concatenate([buffer.sample_batch(350).reward for _ in range(20)])
    found = np.array([((drawn // 1000) == k).sum() for k in range(4)])
    expected = 7000 * np.array(sizes) / 350
    assert (np.square(found - expected) / expected).sum() < 16.3  # chi-square, 3 dof, 0.1 %


def test_priorities_reach_their_shards_and_weights_are_global(ray):
    buffer = ReplayBuffer(BOX, TWO, 1000, shards=2, turn=1, prioritized=True, alpha=1.0, beta=1.0)
    buffer.store(fragment(0))
    buffer.store(fragment(100))
    buffer.flush()
    priority = {number: 1.0 + number for number in [*range(50), *range(100, 150)]}
    for _ in range(12):
        batch = buffer.sample_batch(400)
        buffer.update_priorities(batch, 1.0 + batch.reward)
    buffer.flush()
    total = sum(priority.values())
    drawn = [buffer.sample_batch(500) for _ in range(10)]
    rewards = np.concatenate([batch.reward for batch in drawn])
    low = rewards[rewards < 50].size
    expected = 5000 * sum(priority[number] for number in range(50)) / total
    assert abs(low - expected) < 5 * np.sqrt(expected)
    for batch in drawn:
        assert np.allclose(batch.weight, (1 + batch.reward).min() / (1 + batch.reward), rtol=1e-3)


@pytest.mark.slow
def test_images_dicts_and_several_actions_are_kept_as_they_are(ray):
    obs = spaces.Dict(
        {"image": spaces.Box(0, 255, (4, 5, 3), np.uint8), "place": spaces.Discrete(7)}
    )
    action = spaces.Box(-1, 1, (2, 3))
    buffer = ReplayBuffer(obs, action, 500, num_envs=2)
    rng = np.random.default_rng(0)
    data = {
        "obs": {
            "image": rng.integers(0, 256, (30, 2, 4, 5, 3), np.uint8),
            "place": rng.integers(0, 7, (30, 2)),
        },
        "action": rng.uniform(-1, 1, (30, 2, 2, 3)).astype(np.float32),
        "reward": np.arange(60, dtype=np.float32).reshape(30, 2),
        "terminated": np.ones((30, 2), bool),
        "truncated": np.zeros((30, 2), bool),
    }
    data["next_obs"] = data["obs"]
    buffer.store(data)
    batch = buffer.sample_batch(100)
    step, env = np.divmod(batch.reward.astype(int), 2)
    assert batch.obs["image"].dtype == np.uint8
    assert np.array_equal(batch.obs["image"], data["obs"]["image"][step, env])
    assert np.array_equal(batch.obs["place"], data["obs"]["place"][step, env])
    assert np.array_equal(batch.action, data["action"][step, env])
    with pytest.raises(OptionError, match="terminated, truncated"):
        buffer.store({"obs": 1})


def test_what_a_shard_refuses_reaches_who_stored_it(ray, one):
    buffer = ray.get(ray.put(one))
    with pytest.raises(BlockError, match="replay shard 0 raised"):
        buffer.store(fragment(0, envs=3))
        buffer.flush()


@pytest.mark.slow
def test_those_who_are_ahead_wait_and_nothing_is_dropped(ray):
    buffer = ReplayBuffer(
        BOX, TWO, 10_000, samples_per_insert=2.0, min_size=100, error_buffer=150, in_flight=2
    )
    stored = []

    def produce():
        for k in range(20):
            stored.append(buffer.store(fragment(50 * k)))
        buffer.flush()

    producer = started(produce)
    # 100 before the first sample is due, and 150 samples ahead at 2 for each insert.
    assert eventually(lambda: stored and stored[-1] == 150)
    time.sleep(0.3)
    assert stored[-1] == 150
    client = ray.get(ray.put(buffer))
    taken = 0
    while producer.is_alive():
        with suppress(ReplayEmptyError):
            client.sample_batch(50, timeout=0.1)
            taken += 50
    assert stored == [50 * (k + 1) for k in range(20)]
    assert buffer.get_counts()["stored"] == [1000]
    buffer.seal()
    while client.sample_batch(50, timeout=5) is not None:
        taken += 50
    assert taken == 2 * (1000 - 100)
    assert buffer.store(fragment(0)) is None


def test_a_lost_shard_comes_back_empty_and_the_other_goes_on(ray):
    buffer = ReplayBuffer(BOX, TWO, 1000, shards=2, turn=1, prioritized=True)
    for k in range(4):
        buffer.store(fragment(50 * k))
    buffer.flush()
    old = buffer.sample_batch(100)
    lost = buffer._shards[0].actor
    ray.kill(lost, no_restart=False)
    batch = buffer.sample_batch(64, timeout=20)
    assert set(batch.index % 2) == {1}
    for k in range(4, 12):  # some of these meet the shard while it is away
        buffer.store(fragment(50 * k))
    assert buffer.flush() == 600
    stored = buffer.get_counts()["stored"]
    assert sum(stored) == 100 + 400 and min(stored) > 0
    buffer.update_priorities(old, np.full(100, 1e6))  # those of the former life are passed over
    buffer.flush()
    contents = ray.get(lost.look.remote()).contents
    assert contents.mass == pytest.approx(contents.stored)
    assert buffer.get_counts()["lost_shards"] == 1


@pytest.mark.slow
@pytest.mark.slow
def test_a_lone_shard_that_was_lost_is_filled_again_though_samples_are_behind(ray):
    buffer = ReplayBuffer(BOX, TWO, 1000, samples_per_insert=1.0, min_size=100, error_buffer=60)
    for k in range(3):
        buffer.store(fragment(50 * k))
    buffer.flush()
    buffer.sample_batch(1)
    ray.kill(buffer._shards[0].actor, no_restart=False)
    got = []
    client = ray.get(ray.put(buffer))
    learner = started(lambda: got.append(client.sample_batch(20, timeout=300)))
    buffer.store(fragment(500))
    buffer.flush()
    learner.join(30)
    assert got and set(got[0].reward) <= set(range(500, 550))


def test_a_client_that_is_born_again_knows_what_it_had_stored(ray, one):
    before = one.rollout_steps
    client = ray.get(ray.put(one))
    assert client.join("worker 3") == 0
    client.store(fragment(0))
    assert client.flush() == 50
    client.store(fragment(50))  # on its way when the process dies: counts as not stored
    assert one.rollout_steps == before + 100
    again = ray.get(ray.put(one))
    assert again.join("worker 3") == 50
    again.store(fragment(50))
    assert again.flush() == 100
    assert one.rollout_steps == before + 100


def test_impossible_sizes_are_refused_before_anything_starts(ray):
    with pytest.raises(OptionError, match="min_size=10"):
        ReplayBuffer(BOX, TWO, 5, min_size=10)
    with pytest.raises(OptionError, match="shards=0"):
        ReplayBuffer(BOX, TWO, 5, shards=0)
    with pytest.raises(OptionError, match="3 blocks need 3 GPUs\n  why: the cluster has 0 GPUs"):
        ReplayBuffer(BOX, TWO, 50, shards=3, num_gpus=1)
