"""Encoders that read images with a residual network, by its name, for any space with images."""

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import torch
from torch import nn

from muster.envs.masks import parts_to_read
from muster.nets.cnn import NatureCNN
from muster.nets.encoder_names import EncoderName
from muster.nets.encoders import DictEncoder, make_encoder
from muster.nets.errors import ModelError
from muster.nets.impala_cnn import ImpalaCNN
from muster.nets.registry import resnet_depth
from muster.nets.resnet import ResNet

Reader = Callable[[tuple[int, ...], torch.Generator | None], nn.Module]
"""Makes the encoder of images of one shape."""


def is_residual(model: str) -> bool:
    """Whether a name is that of a residual network."""
    return EncoderName.of(model) is not None


def residual_encoder(
    model: str, space: gym.Space[Any], generator: torch.Generator | None = None
) -> nn.Module:
    """Return the standard encoder of a space, with a residual network for each of its images.

    Args:
        model: `impala_cnn`, `resnet8`, `resnet20`, ..., see `EncoderName`.
        space: Space of one observation.
        generator: Draws the initial weights. None: torch's global generator.

    Raises:
        ModelError: There is no image in the space.
    """
    name = EncoderName.of(model)
    assert name is not None, "the caller asked is_residual"
    depth = resnet_depth(name.base)

    def read(shape: tuple[int, ...], generator: torch.Generator | None) -> nn.Module:
        if depth is None:
            encoder: nn.Module = ImpalaCNN(shape, generator, name.norm is not None)
        else:
            encoder = resnet(shape, generator)
        return encoder.requires_grad_(False) if name.frozen else encoder

    def resnet(shape: tuple[int, ...], generator: torch.Generator | None) -> nn.Module:
        assert depth is not None
        if name.norm is None:
            return ResNet(shape, depth, generator=generator)
        norm: Any = "fixed" if name.norm == "batch" else name.norm
        return ResNet(shape, depth, norm, generator=generator, standardized=True)

    encoder = _encoder(read, space, generator)
    check_image(model, space, encoder)
    return encoder


def _encoder(reader: Reader, space: gym.Space[Any], generator: torch.Generator | None) -> nn.Module:
    if isinstance(space, gym.spaces.Dict):
        parts = parts_to_read(space).items()
        return DictEncoder({key: _encoder(reader, part, generator) for key, part in parts})
    encoder = make_encoder(space, generator)
    if isinstance(encoder, NatureCNN) and space.shape is not None:
        return reader(space.shape, generator)
    return encoder


def check_image(model: str, space: gym.Space[Any], encoder: nn.Module) -> None:
    """Raise ModelError unless an encoder of `space` reads an image."""
    if any(isinstance(part, nn.Conv2d) for part in encoder.modules()):
        return
    raise ModelError(
        f"the model {model!r} cannot read {space}",
        "it reads images: a Box of uint8 with height and width",
        "--model mlp",
    )
