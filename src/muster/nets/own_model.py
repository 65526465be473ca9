"""Builds your own network from a seed, and tests it before it is used."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import nn

from muster.errors import MusterError
from muster.nets.dropout import SeededDropout
from muster.nets.errors import ModelError


def two_of(space: gym.Space[Any]) -> Any:
    """Return two observations of zeros (or the lowest values), stacked as a vector env does."""
    if isinstance(space, gym.spaces.Dict):
        return {key: two_of(part) for key, part in space.items()}
    if isinstance(space, gym.spaces.Discrete):
        return np.full(2, space.start, space.dtype)
    if isinstance(space, gym.spaces.MultiDiscrete):
        return np.stack([space.start, space.start])
    if space.shape is None:
        raise ModelError(
            f"observations of {space} have no fixed shape",
            "a batch of them would not be an array",
            "wrap the environment so that it has Box or Dict observations",
        )
    return np.zeros((2, *space.shape), space.dtype)


@contextmanager
def global_generator_seeded(seed: int) -> Iterator[None]:
    """Let layers built inside draw their weights from `seed`; then restore the global state."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


def built(factory: Callable[..., Any], obs_space: gym.Space[Any], outputs: int) -> nn.Module:
    """Return the network that your class or function makes; raise ModelError if it makes none."""
    try:
        module = factory(obs_space, outputs)
    except MusterError:
        raise
    except Exception as error:
        raise ModelError(
            f"the model cannot be built: {type(error).__name__}: {error}",
            "a model is a class or function that is called with (obs_space, n_outputs)",
            "def model(obs_space, n_outputs): return MyNetwork(...)",
        ) from error
    if not isinstance(module, nn.Module):
        raise ModelError(
            f"the model returned {module!r:.200}, which is not a torch module",
            "a model is called with (obs_space, n_outputs) and must return a torch.nn.Module",
            "def model(obs_space, n_outputs): return MyNetwork(...)",
        )
    return module


def refuse_two_modes(module: nn.Module, outputs: Callable[[nn.Module], Any]) -> None:
    """Raise ModelError for a network that computes different results in training and evaluation.

    A policy must be the same function when it acts and when it learns, or the ratio of the two
    would look like a step of the policy; dropout noise would come from torch's own generator, not
    from the seed; and batch norm makes the result of a row depend on the other rows, and so on
    which worker computes them.

    Args:
        module: The network, with all its sizes known.
        outputs: Runs it on some observations, and returns a tensor or a tuple of tensors.
    """
    name = first_of_two_modes(module)
    if name is not None:
        raise _two_modes(f"the layer {name}, does")
    trained = copy.deepcopy(module).train()
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.default_generator.manual_seed(0)
        one, other = outputs(copy.deepcopy(module).eval()), outputs(trained)
    if not _equal(one, other):
        raise _two_modes("its forward() does, depending on self.training")


def first_of_two_modes(module: nn.Module) -> str | None:
    """Return the first layer with dropout, batch norm or similar; None if there is none."""
    for name, layer in module.named_modules():
        if _has_two_modes(layer):
            return f"{name or 'itself'!r}, {layer}"
    return None


def _has_two_modes(layer: nn.Module) -> bool:
    if isinstance(layer, SeededDropout):
        return True
    if isinstance(layer, nn.modules.dropout._DropoutNd):
        return layer.p > 0
    if isinstance(layer, nn.RNNBase | nn.MultiheadAttention):
        return layer.dropout > 0
    if isinstance(layer, nn.modules.instancenorm._InstanceNorm):
        return layer.track_running_stats
    return isinstance(layer, nn.modules.batchnorm._BatchNorm | nn.RReLU)


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, tuple):
        return all(map(_equal, one, other))
    return bool(torch.equal(one, other))


def _two_modes(which: str) -> ModelError:
    return ModelError(
        "the model behaves differently in training and in evaluation",
        f"{which}: acting and learning would use different policies, and the seed would not "
        "determine them",
        "torch.nn.LayerNorm in place of batch norm, and no dropout",
    )
