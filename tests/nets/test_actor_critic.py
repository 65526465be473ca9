"""The standard policy network: shapes, sharing, first weights."""

import numpy as np
import pytest
import torch
from gymnasium import spaces

from muster.nets.action_head import ActionHead
from muster.nets.actor_critic import ActorCritic

VECTOR = spaces.Box(-1, 1, (6,))
ACTIONS = {
    "discrete": (spaces.Discrete(4), 4),
    "multi": (spaces.MultiDiscrete([2, 3]), 5),
    "box": (spaces.Box(-1, 1, (2, 2)), 8),
}


def _made(obs_space=VECTOR, action="discrete", seed=0, **options):
    generator = torch.Generator().manual_seed(seed)
    head = ActionHead.of(ACTIONS[action][0])
    return ActorCritic(obs_space, head, generator=generator, **options)


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("hidden", [(), (8,), (8, 6)])
def test_it_gives_outputs_and_values(action, shared, hidden):
    outputs, value = _made(action=action, shared=shared, hidden=hidden)(torch.ones(3, 6))
    assert outputs.shape == (3, ACTIONS[action][1])
    assert value.shape == (3,)


def test_shared_layers_are_there_once():
    def widths(shared):
        return [tuple(p.shape) for p in _made(shared=shared).parameters() if p.dim() == 2]

    assert widths(True) == [(64, 6), (64, 64), (4, 64), (1, 64)]
    assert widths(False) == [(64, 6), (64, 64), (4, 64), (64, 6), (64, 64), (1, 64)]


def test_the_first_policy_is_nearly_uniform_and_its_weights_are_orthogonal():
    module = _made()
    outputs, _ = module(torch.randn(50, 6, generator=torch.Generator().manual_seed(1)))
    assert outputs.abs().max() < 0.05
    weight = module.policy[2].weight
    torch.testing.assert_close(weight @ weight.T, 2 * torch.eye(64), atol=1e-4, rtol=0)
    assert all(not p.any() for n, p in module.named_parameters() if n.endswith("bias"))


def test_a_gaussian_has_one_log_std_for_all_observations():
    module = _made(action="box", log_std=-0.5)
    outputs, _ = module(torch.randn(3, 6, generator=torch.Generator().manual_seed(1)))
    assert torch.equal(outputs[:, 4:], torch.full((3, 4), -0.5))
    outputs[:, 4:].sum().backward()
    assert module.log_std.grad.tolist() == [3.0] * 4


def test_normalised_observations_go_in():
    module = _made(normalize_obs=True)
    obs = torch.full((2, 6), 5.0)
    before = module(obs)[1]
    module.normalizer.parts[0].merge(10, np.full(6, 5.0), np.full(6, 10.0))
    after = module(obs)[1]
    assert not torch.equal(before, after)
    assert torch.equal(after, module(torch.full((2, 6), 5.0))[1])
    torch.testing.assert_close(after, _made()(torch.zeros(2, 6))[1])


def test_the_generator_alone_decides_the_weights():
    before = torch.random.get_rng_state()
    image = spaces.Box(0, 255, (20, 20, 3), np.uint8)
    vectors = [
        torch.cat([p.flatten() for p in _made(image, seed=seed).parameters()]) for seed in (1, 1, 2)
    ]
    assert torch.equal(vectors[0], vectors[1])
    assert not torch.equal(vectors[0], vectors[2])
    assert torch.equal(torch.random.get_rng_state(), before)
