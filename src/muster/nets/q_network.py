"""Builds the network of a Q-learner: from any observation to one value per action."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import torch
from torch import Tensor, nn

from muster.devices import as_tensors
from muster.envs.masks import is_masked
from muster.errors import OptionError
from muster.nets.encoders import make_encoder
from muster.nets.errors import ModelError
from muster.nets.masking import MaskedModel
from muster.nets.mlp import MLP, DuelingHead, linear
from muster.nets.own_model import built, global_generator_seeded, refuse_two_modes, two_of
from muster.nets.registry import Factory, get_model


def build_q_network(
    obs_space: gym.Space[Any],
    n_actions: int,
    hidden: Sequence[int] = (64, 64),
    dueling: bool = False,
    model: str | Factory | None = None,
    *,
    activation: str = "relu",
    seed: int = 0,
) -> nn.Module:
    """Return a module from observations [B, ...] to Q [B, n_actions].

    Args:
        obs_space: Space of one observation. Images get convolutions, numbers from a finite set
            become one-hot vectors, the parts of a Dict are encoded one by one.
        n_actions: Number of actions.
        hidden: Width of each layer between the encoder and the head.
        dueling: Separate streams for the value and the advantages. Each stream then has its own
            last layer of `hidden`.
        model: A registered name, or a class or function of (obs_space, n_actions), that replaces
            all this. It is tested on two observations before it is returned.
        activation: "relu", "tanh", "gelu" or "silu", after each layer of `hidden`.
        seed: Determines the initial weights; torch's global generator is neither used nor changed.
    """
    if model is not None:
        if dueling:
            raise OptionError(
                f"dueling=True and model={model!r} contradict each other",
                "your own model has its own head",
                "dueling=False, and a muster.nets.DuelingHead in the model",
            )
        return _build_own(get_model(model), obs_space, n_actions, seed)
    if dueling and not hidden:
        raise OptionError(
            "dueling=True and hidden=() contradict each other",
            "the last hidden layer makes the two streams",
            "hidden=(64,)",
        )
    generator = torch.Generator().manual_seed(seed)
    encoder = make_encoder(obs_space, generator)
    widths = list(hidden)
    if dueling:
        widths[-1] *= 2
    features = int(encoder.out_features)  # type: ignore[arg-type]  # every encoder has it
    trunk = MLP(features, widths, activation=activation, generator=generator)
    last = widths[-1] if widths else features
    make_head = DuelingHead if dueling else linear
    head = make_head(last, n_actions, generator)
    whole = nn.Sequential(OrderedDict(encoder=encoder, trunk=trunk, head=head))
    return MaskedModel(whole) if is_masked(obs_space) else whole


def _build_own(factory: Factory, obs_space: gym.Space[Any], n_actions: int, seed: int) -> nn.Module:
    with global_generator_seeded(seed):
        module = built(factory, obs_space, n_actions)
        obs = as_tensors(two_of(obs_space))
        training = module.training
        module.eval()  # or batch norm would include these two in its statistics
        with torch.no_grad():
            q = module(obs)  # also determines the sizes of lazy layers
        module.train(training)
    shape = tuple(q.shape) if isinstance(q, Tensor) else None
    if shape != (2, n_actions):
        got = f"a tensor of shape {shape}" if shape is not None else repr(q)
        raise ModelError(
            f"the model returns {got} for two observations, not one of shape {(2, n_actions)}",
            "a Q-network has one output per action, and rows are observations",
            f"end it with torch.nn.Linear(..., {n_actions})",
        )
    refuse_two_modes(module, lambda net: net(obs))
    return MaskedModel(module) if is_masked(obs_space) else module
