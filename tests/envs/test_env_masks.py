"""Action masks: from `info` into the observation, checked row by row."""

import gymnasium as gym
import numpy as np
import pytest

from muster.envs import EnvError, check_env, make_envs
from muster.envs.masks import ACTION_MASK, flat_mask, legal_actions


class Gate(gym.Env):
    """Legal actions change with every step; another one is an error of the caller.

    Args:
        how: Where the mask is: "info" or "obs".
        actions: The action space.
        empty_at: The step after which no action is legal.
        ends: Whether the episode is over then.
    """

    def __init__(self, how="info", actions=None, empty_at=None, ends=None):
        self.action_space = actions or gym.spaces.Discrete(3)
        self._how, self._empty_at, self._ends = how, empty_at, ends
        nvec = getattr(self.action_space, "nvec", None)
        self._choices = [int(self.action_space.n)] if nvec is None else nvec.tolist()
        number = gym.spaces.Box(-100, 100, (1,), np.float32)
        self.observation_space = number
        if how == "obs":
            mask = gym.spaces.MultiBinary(sum(self._choices))
            self.observation_space = gym.spaces.Dict({"number": number, ACTION_MASK: mask})

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._see()

    def step(self, action):
        start = 0
        for number, count in zip(np.atleast_1d(action), self._choices, strict=True):
            assert self.mask[start + int(number)], "an illegal action was taken"
            start += count
        self.steps += 1
        over = self.steps == self._empty_at
        ended = over and self._ends == "terminated"
        cut = (over and self._ends == "truncated") or self.steps == 12
        return (*self._see()[:1], 1.0, ended, cut, self._see()[1])

    def _see(self):
        rng = np.random.default_rng([self.steps, 7])
        self.mask = (rng.random(sum(self._choices)) < 0.4).astype(np.int8)
        start = 0
        for count in self._choices:
            self.mask[start + rng.integers(count)] = 1
            start += count
        if self.steps == self._empty_at:
            self.mask[:] = 0
        number = np.array([self.steps], np.float32)
        if self._how == "obs":
            return {"number": number, ACTION_MASK: self.mask.copy()}, {}
        return number, {ACTION_MASK: self.mask.copy()}


TWO = gym.spaces.MultiDiscrete([2, 4])


@pytest.mark.parametrize("how", ["info", "obs"])
@pytest.mark.parametrize("actions", [None, TWO], ids=["Discrete", "MultiDiscrete"])
def test_a_mask_is_part_of_the_observation_wherever_it_came_from(how, actions):
    with make_envs(lambda: Gate(how, actions), 2, seed=3) as envs:
        space = envs.single_observation_space
        assert isinstance(space, gym.spaces.Dict) and ACTION_MASK in space.spaces
        obs = envs.reset()
        for _ in range(30):
            assert obs[ACTION_MASK].shape == (2, 3 if actions is None else 6)
            drawn = np.stack([envs.single_action_space.sample() for _ in range(2)])
            action = legal_actions(drawn, obs, envs.single_action_space)
            obs, *_ = envs.step(action)  # which fails if the action is illegal


def test_the_mask_of_a_real_environment_reaches_its_observations():
    with make_envs("Taxi-v4", 3) as envs:
        obs = envs.reset()
        assert set(obs) == {"obs", ACTION_MASK} and obs[ACTION_MASK].shape == (3, 6)
        assert 0 < obs[ACTION_MASK].sum() < 18


def test_what_was_legal_is_left_and_what_was_not_becomes_the_next_that_is():
    mask = np.array([[0, 1, 0, 1], [1, 0, 0, 0]])
    space = gym.spaces.Discrete(4, start=10)
    for drawn, wanted in (([10, 12], [11, 10]), ([12, 13], [13, 10]), ([11, 10], [11, 10])):
        found = legal_actions(np.array(drawn), {ACTION_MASK: mask}, space)
        assert found.tolist() == wanted
    assert legal_actions(np.array([10]), np.zeros((1, 3)), space).tolist() == [10]


def test_a_tuple_of_masks_is_laid_end_to_end():
    assert flat_mask((np.ones(2, np.int8), np.zeros(3, bool))).tolist() == [1, 1, 0, 0, 0]


@pytest.mark.parametrize("how", ["info", "obs"])
@pytest.mark.parametrize("ends", [None, "truncated"])
def test_a_row_without_a_legal_action_is_an_error_that_names_env_and_step(how, ends):
    with make_envs(lambda: Gate(how, empty_at=2, ends=ends), 2, seed=3) as envs:
        obs = envs.reset()
        obs, *_ = envs.step(legal_actions(np.zeros(2, int), obs, envs.single_action_space))
        with pytest.raises(EnvError, match="leaves no legal action") as caught:
            envs.step(legal_actions(np.zeros(2, int), obs, envs.single_action_space))
    assert (caught.value.env, caught.value.step, caught.value.field) == (0, 2, ACTION_MASK)


def test_an_episode_that_is_over_needs_no_legal_action():
    with make_envs(lambda: Gate(empty_at=2, ends="terminated"), 2, seed=3) as envs:
        obs = envs.reset()
        for _ in range(6):
            obs, _, terminated, _, info = envs.step(
                legal_actions(np.zeros(2, int), obs, envs.single_action_space)
            )
            if terminated.any():
                assert not info["final_obs"][ACTION_MASK].any()
                return
    pytest.fail("no episode ended")


def test_a_mask_of_another_size_is_refused_before_it_is_used():
    class Wrong(Gate):
        def __init__(self):
            super().__init__("obs")
            number = self.observation_space["number"]
            mask = gym.spaces.MultiBinary(5)
            self.observation_space = gym.spaces.Dict({"number": number, ACTION_MASK: mask})

    with pytest.raises(EnvError, match=r"the action_mask of .* has shape \(5,\)"):
        make_envs(Wrong)


def test_actions_that_cannot_be_counted_have_no_mask():
    class Wrong(Gate):
        def __init__(self):
            super().__init__("obs")
            self.action_space = gym.spaces.Box(-1, 1, (3,), np.float32)

    with pytest.raises(EnvError, match="has an action_mask, and its actions are Box"):
        make_envs(Wrong)


def test_an_episode_with_masks_is_restored_to_the_step():
    with make_envs(Gate, 2, seed=1) as one, make_envs(Gate, 2, seed=1) as two:
        obs = one.reset()
        for _ in range(5):
            obs, *_ = one.step(legal_actions(np.zeros(2, int), obs, one.single_action_space))
        two.load_state_dict(one.state_dict())
        assert np.array_equal(two.obs[ACTION_MASK], one.obs[ACTION_MASK])


@pytest.mark.parametrize("how", ["info", "obs"])
def test_the_check_of_an_environment_takes_legal_actions_only(how):
    report = check_env(lambda: Gate(how))
    assert report.reproducible and report.restorable and report.steps_per_s > 0
    assert not [each for each in report.problems if "gymnasium's checker" not in each]
