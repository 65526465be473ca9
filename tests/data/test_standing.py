"""`Standing`: environments that are restored from it are those that never stopped, to the bit."""

import warnings
from itertools import pairwise

import gymnasium as gym
import numpy as np
import pytest

from muster.data import standing as standing_module
from muster.data.slots import SlotPlan
from muster.data.standing import Standing, columns_of
from muster.envs import make_envs
from muster.errors import MusterWarning

IDS = ["CartPole-v1", "Pendulum-v1", "MountainCar-v0", "LunarLander-v3"]
STEPS, ENVS, SEED = 16, 4, 11


def plan_for(envs, steps=STEPS, slots=2):
    action = envs.single_action_space
    width = int(np.prod(action.shape, dtype=int))
    return SlotPlan(
        envs.single_observation_space,
        width,
        np.dtype(np.float32 if isinstance(action, gym.spaces.Box) else np.int64),
        action,
        steps=steps,
        envs=envs.num_envs,
        slots=slots,
    )


def standing_for(plan):
    fields = Standing.fields(plan)
    return Standing(plan, {n: np.zeros(shape, dtype) for n, (shape, dtype) in fields.items()})


def draw(envs, rng):
    """Return actions [N, ...] for all envs."""
    space = envs.single_action_space
    if isinstance(space, gym.spaces.Discrete):
        return rng.integers(0, space.n, envs.num_envs)
    if isinstance(space, gym.spaces.MultiDiscrete):
        return np.stack([rng.integers(0, space.nvec) for _ in range(envs.num_envs)])
    size = (envs.num_envs, *space.shape)
    return rng.uniform(space.low, space.high, size).astype(space.dtype)


class Walk:
    """Environments that write where they stand after every rollout."""

    def __init__(self, env_id, num_envs=ENVS, steps=STEPS):
        self.env_id, self.steps = env_id, steps
        self.envs = make_envs(env_id, num_envs, SEED)
        self.plan = plan_for(self.envs, steps)
        self.standing = standing_for(self.plan)
        self.everyone = slice(0, num_envs)
        self.rng = np.random.default_rng(3)
        self.loop = 0
        self.envs.reset()
        self.standing.write(0, self.envs, self.everyone)

    def rollout(self):
        done = []
        for _ in range(self.steps):
            done.append(draw(self.envs, self.rng))
            self.envs.step(done[-1])
        self.loop += 1
        self.standing.write(self.loop, self.envs, self.everyone, np.stack(done))

    def restored(self, columns=None, standing=None):
        columns = columns or self.everyone
        size = columns.stop - columns.start
        fresh = make_envs(self.env_id, size, SEED, first_env=columns.start)
        state = (standing or self.standing).state_of(self.loop, columns, fresh.state_dict())
        fresh.load_state_dict(state)
        return fresh


def assert_same_bits(one, other):
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_same_bits(one[key], other[key])
        return
    one, other = np.asarray(one), np.asarray(other)
    assert one.dtype == other.dtype and one.shape == other.shape
    assert one.tobytes() == other.tobytes()


def cut(obs, columns):
    return {k: v[columns] for k, v in obs.items()} if isinstance(obs, dict) else obs[columns]


def assert_goes_on_alike(walk, fresh, columns, steps):
    """Step both, and compare all that comes back; the walk's own envs come back to the start."""
    start = walk.envs.state_dict()
    rng = np.random.default_rng(walk.loop)
    assert_same_bits(cut(walk.envs.obs, columns), fresh.obs)
    for name, mine, theirs in zip(
        ("episodes", "returns", "lengths"), walk.envs.books(), fresh.books(), strict=True
    ):
        assert list(mine[columns]) == list(theirs), name
    for _ in range(steps):
        actions = draw(walk.envs, rng)
        whole, part = walk.envs.step(actions), fresh.step(actions[columns])
        for number in range(4):
            assert_same_bits(cut(whole[number], columns), part[number])
    walk.envs.load_state_dict(start)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("env_id", IDS)
def test_restored_environments_are_those_that_never_stopped(env_id):
    walk = Walk(env_id)
    rng = np.random.default_rng(1)
    stops = set(rng.choice(np.arange(0, 40), 8, replace=False).tolist()) | {0, 1}
    for loop in range(41):
        if loop in stops:
            first = int(rng.integers(0, ENVS))
            columns = slice(first, int(rng.integers(first + 1, ENVS + 1)))
            fresh = walk.restored(columns)
            assert_goes_on_alike(walk, fresh, columns, 2 * STEPS)
            fresh.close()
        walk.rollout()
    assert max(walk.envs.books().episodes) >= 2, "no episode ended: nothing was tried"


def test_the_page_before_stays_whole_while_the_next_one_is_written():
    walk = Walk("CartPole-v1")
    for _ in range(6):
        walk.rollout()
    before = walk.envs.state_dict()
    loop = walk.loop
    walk.rollout()  # complete, but its worker died before it said so
    walk.loop = loop
    fresh = walk.restored()
    walk.envs.load_state_dict(before)
    assert_goes_on_alike(walk, fresh, walk.everyone, STEPS)


def test_the_ring_may_go_round_many_times(monkeypatch):
    monkeypatch.setattr(standing_module, "_LONGEST", 2 * STEPS + 5)
    walk = Walk("CartPole-v1")
    ring = Standing.fields(walk.plan)["stand_ring"][0][0]
    assert ring == 3 * STEPS + 5 and ring % STEPS, "the seam is not always at the same place"
    restored = 0
    for _ in range(60):
        walk.rollout()
        if max(walk.envs.books().lengths) <= walk.standing.longest:
            restored += 1
            assert_goes_on_alike(walk, walk.restored(), walk.everyone, 5)
    assert restored > 30 and walk.loop * STEPS > 15 * ring


def test_the_longest_episode_that_is_kept_is_restored_and_the_next_longer_is_not(monkeypatch):
    monkeypatch.setattr(standing_module, "_LONGEST", 3 * STEPS)
    walk = Walk("MountainCar-v0")
    for _ in range(3):
        walk.rollout()
    assert set(walk.envs.books().lengths) == {walk.standing.longest}
    assert_goes_on_alike(walk, walk.restored(), walk.everyone, 5)
    walk.rollout()
    with pytest.warns(MusterWarning, match="begins episode 1 instead of going on with episode 0"):
        fresh = walk.restored()
    assert fresh.books().lengths == [0] * ENVS and fresh.books().episodes == [1] * ENVS
    fresh.step(draw(fresh, walk.rng))


def test_only_the_episode_that_is_too_long_begins_again(monkeypatch):
    monkeypatch.setattr(standing_module, "_LONGEST", STEPS)
    walk = Walk("CartPole-v1")
    for _ in range(40):
        walk.rollout()
        too_long = np.array(walk.envs.books().lengths) > walk.standing.longest
        if 0 < too_long.sum() < ENVS:
            break
    else:
        pytest.fail("there never were some of each")
    with pytest.warns(MusterWarning) as caught:
        fresh = walk.restored()
    assert len(caught) == too_long.sum()
    for env in range(ENVS):
        mine, theirs = walk.envs.books(), fresh.books()
        if too_long[env]:
            assert theirs.episodes[env] == mine.episodes[env] + 1 and theirs.lengths[env] == 0
        else:
            assert_same_bits(walk.envs.obs[env], fresh.obs[env])
            assert theirs.lengths[env] == mine.lengths[env]


def test_a_plan_of_large_rows_has_a_smaller_ring(monkeypatch):
    monkeypatch.setattr(standing_module, "_RING_BYTES", 8 * ENVS * 50)
    walk = Walk("CartPole-v1")
    assert walk.standing.longest == 50
    monkeypatch.setattr(standing_module, "_RING_BYTES", 1)
    assert Walk("CartPole-v1").standing.longest == STEPS, "one rollout is kept in any case"


class Scene(gym.Env):
    """An image, numbers and a gear; the action has two parts."""

    observation_space = gym.spaces.Dict(
        {
            "camera": gym.spaces.Box(0, 255, (5, 5, 1), np.uint8),
            "joints": gym.spaces.Box(-np.inf, np.inf, (2,), np.float32),
            "gear": gym.spaces.Discrete(3),
        }
    )
    action_space = gym.spaces.MultiDiscrete([2, 3])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(3, 60))
        return self.look(), {}

    def look(self):
        return {
            "camera": self.np_random.integers(0, 256, (5, 5, 1), dtype=np.uint8),
            "joints": self.np_random.normal(size=2).astype(np.float32),
            "gear": int(self.np_random.integers(0, 3)),
        }

    def step(self, action):
        self.left -= 1 + int(action[0])
        return self.look(), float(action[1]), self.left <= 0, False, {}


@pytest.mark.parametrize("steps", [1, 7])
def test_dict_and_image_observations_and_actions_of_several_parts(steps):
    walk = Walk(Scene, steps=steps)
    for loop in range(30):
        if loop % 5 == 0:
            assert_goes_on_alike(walk, walk.restored(), walk.everyone, 20)
            assert_goes_on_alike(walk, walk.restored(slice(1, 3)), slice(1, 3), 20)
        walk.rollout()
    assert max(walk.envs.books().episodes) >= 1


# ---- states that are cut into columns


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1", Scene], ids=str)
@pytest.mark.parametrize("bounds", [(0, 6), (0, 3, 6), (0, 1, 2, 6), (0, 1, 2, 3, 4, 5, 6)])
def test_the_columns_of_a_whole_state_are_the_members_own_states(env_id, bounds):
    shares = [slice(*pair) for pair in pairwise(bounds)]
    whole = make_envs(env_id, 6, SEED)
    members = [
        make_envs(env_id, each.stop - each.start, SEED, first_env=each.start) for each in shares
    ]
    rng = np.random.default_rng(0)
    for each in (whole, *members):
        each.reset()
    for _ in range(37):
        actions = draw(whole, rng)
        whole.step(actions)
        for share, member in zip(shares, members, strict=True):
            member.step(actions[share])
    state = whole.state_dict()
    for share, member in zip(shares, members, strict=True):
        own, part = member.state_dict(), columns_of(state, share)
        assert own.keys() == part.keys()
        for name in own:
            assert_same_bits(own[name], part[name])


def test_columns_are_cut_where_some_episodes_were_too_long_to_be_kept():
    lengths, kept = np.array([2, 9, 3, 1]), np.array([True, False, True, True])
    state = {
        "num_envs": 4,
        "episodes": np.arange(4),
        "lengths": lengths,
        "returns": np.arange(4.0),
        "kept": kept,
        "obs": np.arange(8).reshape(4, 2),
        "actions": np.array([0, 1, 20, 21, 22, 30]),
    }
    part = columns_of(state, slice(1, 3))
    assert part["actions"].tolist() == [20, 21, 22] and part["num_envs"] == 2
    assert columns_of(state, slice(3, 4))["actions"].tolist() == [30]
    assert columns_of(state, slice(0, 2))["actions"].tolist() == [0, 1]


@pytest.mark.parametrize("members", [1, 2, 3, 4])
@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1"])
def test_a_state_of_all_is_gone_on_with_by_any_number_of_members(env_id, members):
    walk = Walk(env_id)
    for _ in range(9):
        walk.rollout()
    template = {**walk.envs.state_dict(), "num_envs": ENVS}
    saved = walk.standing.state_of(walk.loop, walk.everyone, template)
    # What the members write then is what was there.
    again = standing_for(walk.plan)
    for member in range(members):
        share = slice(ENVS * member // members, ENVS * (member + 1) // members)
        envs = make_envs(env_id, share.stop - share.start, SEED, first_env=share.start)
        envs.load_state_dict(columns_of(saved, share))
        again.write(walk.loop, envs, share)
        assert_goes_on_alike(walk, envs, share, 2 * STEPS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fresh = walk.restored(standing=again)
    assert_goes_on_alike(walk, fresh, walk.everyone, 2 * STEPS)
