"""`evaluate_actions`: what a network thinks now of actions that were taken before, in one pass."""

import gymnasium as gym
import numpy as np
import pytest
import torch

from muster.errors import OptionError
from muster.nets.action_head import ActionHead
from muster.nets.build_policy import build_policy, make_policy_net
from muster.nets.flat import FlatParameters
from muster.nets.fused_images import FusedImages
from muster.nets.fused_policy import FusedPolicy
from muster.nets.fused_recurrent import FusedRecurrent
from muster.nets.recurrent import RecurrentPolicy
from muster.nets.torch_policy import TorchPolicy
from muster.rl_utils.losses.given_actions import logp_of_actions, logp_of_actions_numpy

NUMBERS = gym.spaces.Box(-1, 1, (5,), np.float32)
IMAGE = gym.spaces.Box(0, 255, (36, 36, 2), np.uint8)
ACTIONS = {
    "discrete": gym.spaces.Discrete(4),
    "multi": gym.spaces.MultiDiscrete([3, 2, 5]),
    "box": gym.spaces.Box(-1, 1, (2,), np.float32),
}
ROWS = 70


def made(obs_space, actions, model=None, by_torch=False, **options):
    head = ActionHead.of(actions)
    module = build_policy(obs_space, head, (16, 8), model=model, seed=3, **options)
    flat = FlatParameters(module)
    flat.vector[:] += 0.3 * np.random.default_rng(1).normal(size=flat.vector.size)
    if not by_torch:
        return module, head, make_policy_net(module, flat, head)
    kind = RecurrentPolicy if model in ("lstm", "gru") else TorchPolicy
    return module, head, kind(module, flat, head)


def some(space, rows, rng):
    if isinstance(space, gym.spaces.Dict):
        mask = rng.random((rows, 4)) < 0.5
        mask[:, 1] = True
        return {"obs": some(space["obs"], rows, rng), "action_mask": mask.astype(np.int8)}
    if space.dtype == np.uint8:
        return rng.integers(0, 256, (rows, *space.shape), np.uint8)
    return rng.normal(size=(rows, *space.shape)).astype(np.float32)


def room(head, rows):
    logp, value = np.full((2, rows), np.nan, np.float32)
    return np.zeros((rows, head.width), head.dtype), logp, value


def noise_of(head, rows, rng):
    draw = rng.standard_normal if head.gaussian else rng.random
    return draw((rows, head.width), np.float32)


def by_distribution(head, outputs, action):
    action = torch.from_numpy(action)
    if head.gaussian:
        mean, log_std = outputs.chunk(2, dim=1)
        return torch.distributions.Normal(mean, log_std.exp()).log_prob(action).sum(1)
    parts = zip(outputs.split(list(head.sizes), dim=1), action.unbind(1), strict=True)
    return sum(torch.distributions.Categorical(logits=x).log_prob(a) for x, a in parts)


MASKED = gym.spaces.Dict({"obs": NUMBERS, "action_mask": gym.spaces.MultiBinary(4)})


@pytest.mark.parametrize(
    ("space", "actions", "by_torch", "kind"),
    [
        *((NUMBERS, name, False, FusedPolicy) for name in ACTIONS),
        *((NUMBERS, name, True, TorchPolicy) for name in ACTIONS),
        (MASKED, "discrete", False, FusedPolicy),
        (MASKED, "discrete", True, TorchPolicy),
        (IMAGE, "discrete", False, FusedImages),
        (IMAGE, "box", False, FusedImages),
    ],
)
def test_it_knows_the_probability_of_what_was_drawn_and_the_value(space, actions, by_torch, kind):
    module, head, net = made(space, ACTIONS[actions], by_torch=by_torch)
    assert type(net) is kind
    rng = np.random.default_rng(0)
    obs = some(space, ROWS, rng)
    action, logp, value = room(head, ROWS)
    net.act(obs, noise_of(head, ROWS, rng), action, logp, value)
    _, again, worth = room(head, ROWS)
    net.evaluate_actions(obs, action, again, worth)
    assert np.array_equal(again, logp) and np.array_equal(worth, value)

    other = action[::-1].copy()  # not what these rows would have drawn
    if space is MASKED:
        other[:] = 1
    net.evaluate_actions(obs, other, again, worth)
    with torch.no_grad():
        tensors = {k: torch.from_numpy(x) for k, x in obs.items()} if space is MASKED else obs
        outputs, _ = module(tensors if space is MASKED else torch.from_numpy(obs))
    np.testing.assert_allclose(again, by_distribution(head, outputs, other), rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("by_torch", [False, True], ids=["compiled", "torch"])
@pytest.mark.parametrize("model", ["lstm", "gru"])
@pytest.mark.parametrize("actions", ["discrete", "box"])
def test_sequences_go_on_from_their_state_and_through_new_episodes(model, actions, by_torch):
    _, head, net = made(NUMBERS, ACTIONS[actions], model, by_torch)
    assert type(net) is (RecurrentPolicy if by_torch else FusedRecurrent)
    rng = np.random.default_rng(0)
    steps, envs = 9, 6
    obs = some(NUMBERS, steps * envs, rng)
    first = rng.random(steps * envs) < 0.2
    start = rng.normal(size=(envs, net.state_width)).astype(np.float32)
    action, logp, value = room(head, steps * envs)
    state, noise = start.copy(), noise_of(head, steps * envs, rng)
    for t in range(steps):
        rows = slice(t * envs, (t + 1) * envs)
        arrays = obs[rows], noise[rows], action[rows], logp[rows], value[rows]
        net.act(*arrays, state, first[rows])
    _, again, worth = room(head, steps * envs)
    after = start.copy()
    net.evaluate_actions(obs, action, again, worth, after, first)
    exact = {"rtol": 0, "atol": 0} if net.row_exact else {"rtol": 1e-5, "atol": 1e-5}
    for found, wanted in ((again, logp), (worth, value), (after, state)):
        np.testing.assert_allclose(found, wanted, **exact)


@pytest.mark.parametrize("by_torch", [False, True], ids=["compiled", "torch"])
def test_an_action_that_does_not_exist_is_refused(by_torch):
    _, head, net = made(NUMBERS, ACTIONS["discrete"], by_torch=by_torch)
    action, logp, value = room(head, ROWS)
    action[65] = 4
    with pytest.raises(OptionError, match=r"the action \[4\] is not an action of"):
        net.evaluate_actions(some(NUMBERS, ROWS, np.random.default_rng(0)), action, logp, value)


def test_arrays_of_another_length_are_refused():
    _, head, net = made(NUMBERS, ACTIONS["discrete"])
    action, logp, value = room(head, ROWS)
    obs = some(NUMBERS, ROWS, np.random.default_rng(0))
    with pytest.raises(OptionError, match="do not fit the network"):
        net.evaluate_actions(obs, action, logp[:-1], value)


@pytest.mark.parametrize("actions", ACTIONS)
def test_kernel_and_twin_agree(actions):
    head = ActionHead.of(ACTIONS[actions])
    rng = np.random.default_rng(2)
    outputs = rng.normal(size=(ROWS, head.outputs)).astype(np.float32)
    sizes = np.array(head.sizes, np.int64)
    action = np.zeros((ROWS, head.width), head.dtype)
    action[:] = rng.normal(size=action.shape) if head.gaussian else rng.integers(0, sizes)
    ours, theirs = np.zeros((2, ROWS), np.float32)
    assert logp_of_actions(outputs, action, head.gaussian, sizes, ours) == -1
    assert logp_of_actions_numpy(outputs, action, head.gaussian, sizes, theirs) == -1
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
    if not head.gaussian:
        action[7, -1] = -1
        for compute in (logp_of_actions, logp_of_actions_numpy):
            assert compute(outputs, action, False, sizes, ours) == 7
