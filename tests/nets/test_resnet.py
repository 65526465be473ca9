"""Residual networks of any depth 6n + 2: how large they are, what they compute, who may ask."""

import gymnasium as gym
import numpy as np
import pytest
import torch

import muster
from muster.errors import OptionError
from muster.nets import registry
from muster.nets.action_head import ActionHead
from muster.nets.build_policy import build_policy
from muster.nets.errors import ModelError
from muster.nets.q_network import build_q_network
from muster.nets.residual import residual_encoder
from muster.nets.resnet import ResNet, count_layers, resnet_classifier

IMAGE = gym.spaces.Box(0, 255, (32, 32, 3), np.uint8)
PARAMETERS = {1: 75_290, 3: 269_722, 5: 464_154, 7: 658_586, 9: 853_018}
"""By n, for ten classes of colour images: 0.27, 0.46, 0.66 and 0.85 million in the paper."""


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def images(shape, count=4):
    drawn = np.random.default_rng(0).integers(0, 256, (count, *shape), np.uint8)
    return torch.from_numpy(drawn)


@pytest.mark.parametrize("n", PARAMETERS)
def test_a_residual_network_has_6n_plus_2_layers_and_the_parameters_of_the_paper(n):
    module = resnet_classifier((32, 32, 3), 6 * n + 2, 10, generator=seeded())
    assert count_layers(module) == 6 * n + 2
    assert sum(each.numel() for each in module.parameters()) == PARAMETERS[n]


@pytest.mark.parametrize("n", PARAMETERS)
def test_channels_first_and_channels_last_images_give_the_same_outputs(n):
    last = resnet_classifier((32, 32, 3), 6 * n + 2, 10, generator=seeded()).eval()
    first = resnet_classifier((3, 32, 32), 6 * n + 2, 10, generator=seeded()).eval()
    x = images((32, 32, 3))
    with torch.no_grad():
        assert torch.allclose(last(x), first(x.permute(0, 3, 1, 2)), rtol=0, atol=1e-5)


def test_a_block_that_halves_takes_every_second_pixel_and_pads_channels_with_zeros():
    network = ResNet((7, 5), 8, "none", cells=99, generator=seeded())
    halving = network.blocks[1]
    with torch.no_grad():
        for parameter in halving.parameters():
            parameter.zero_()
        x = torch.rand(1, 16, 7, 5)
        made = halving(x)
    assert made.shape == (1, 32, 4, 3)
    assert torch.equal(made[:, 8:24], x[:, :, ::2, ::2])
    assert not made[:, :8].any() and not made[:, 24:].any()


@pytest.mark.parametrize("shape", [(1, 1), (8, 8), (3, 17, 9), (40, 31, 4)])
def test_images_of_any_size_and_layout_are_read(shape):
    encoder = ResNet(shape, 8, generator=seeded())
    with torch.no_grad():
        assert encoder(images(shape)).shape == (4, encoder.out_features)


def test_what_a_policy_makes_of_an_image_does_not_depend_on_those_beside_it():
    encoder = residual_encoder("resnet8", IMAGE, seeded())
    assert not any(isinstance(part, torch.nn.BatchNorm2d) for part in encoder.modules())
    x = images((32, 32, 3))
    with torch.no_grad():
        alone = torch.cat([encoder.train()(x[i : i + 1]) for i in range(len(x))])
        assert torch.allclose(alone, encoder(x), rtol=0, atol=1e-5)


def test_a_policy_and_a_q_network_are_built_by_the_name():
    head = ActionHead.of(gym.spaces.Discrete(3))
    policy = build_policy(IMAGE, head, model="resnet8", seed=1)
    network = build_q_network(IMAGE, 3, model="resnet14", seed=1)
    with torch.no_grad():
        outputs, values = policy(images((32, 32, 3)))
        assert (outputs.shape, values.shape) == ((4, 3), (4,))
        assert network(images((32, 32, 3))).shape == (4, 3)
    assert count_layers(network) == 14 + 1  # a layer of 256 before the outputs


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("resnet21", "resnet20"),
        ("resnet0", "resnet8"),
        ("resnet50", "resnet50"),
        ("resnet18", "resnet20"),
        ("resnet99999", "resnet1202"),
    ],
)
def test_a_depth_that_there_is_not_is_refused_with_the_nearest(name, near):
    if name == near:
        assert registry.resnet_depth(name) == 50
        return
    with pytest.raises(OptionError) as refused:
        registry.check_name(name)
    what, why, fix = refused.value.args
    assert name in what and "6n + 2" in why and fix == f'model="{near}"'


def test_a_slip_in_the_name_is_answered_with_the_nearest():
    with pytest.raises(OptionError) as refused:
        registry.check_name("resent20")
    assert refused.value.args[2] == 'model="resnet20"'


def test_a_name_of_a_residual_network_cannot_be_taken():
    with pytest.raises(OptionError, match="built into muster"):
        registry.register_model("resnet20", torch.nn.Identity)


def test_numbers_are_no_images():
    numbers = gym.spaces.Box(-1, 1, (4,))
    with pytest.raises(ModelError, match="'resnet8' cannot read"):
        build_q_network(numbers, 2, model="resnet8")


class Corners(gym.Env):
    """A square is in one of four corners, which is the action to take."""

    observation_space = gym.spaces.Box(0, 255, (12, 12, 1), np.uint8)
    action_space = gym.spaces.Discrete(4)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._draw(), {}

    def step(self, action):
        reward = float(action == self._corner)
        return self._draw(), reward, bool(self.np_random.random() < 0.1), False, {}

    def _draw(self):
        self._corner = int(self.np_random.integers(4))
        seen = np.zeros((12, 12, 1), np.uint8)
        y, x = 6 * (self._corner // 2), 6 * (self._corner % 2)
        seen[y : y + 6, x : x + 6] = 255
        return seen


@pytest.fixture
def corners():
    gym.register("Corners-v0", Corners, max_episode_steps=20)
    yield "Corners-v0"
    del gym.registry["Corners-v0"]


@pytest.mark.timeout(120)
@pytest.mark.slow
def test_ppo_comes_to_the_same_policy_for_any_number_of_workers(corners, tmp_path):
    def policy(workers):
        done = muster.train(
            "ppo",
            corners,
            model="resnet8",
            env_steps=256,
            num_envs=4,
            rollout=32,
            slots=4,
            minibatches=2,
            epochs=1,
            eval_episodes=1,
            workers=workers,
            quiet=True,
            run_dir=tmp_path / str(workers),
        )
        return done.policy_sha256

    assert policy(0) == policy(2)
