"""Networks by name: the values of `model="..."` in a config or on the command line.

Checking a name does not need torch; registering or building a network loads it.
"""

import functools
import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from muster.errors import OptionError
from muster.nets.encoder_names import EncoderName
from muster.spelling import nearest

if TYPE_CHECKING:
    from torch import nn

Factory = Callable[..., "nn.Module"]
"""Called with (obs_space, n_outputs); returns a module from observations to outputs.

The outputs are Q [B, n_outputs] for a Q-learner, and a pair for a policy: [B, n_outputs], which
`ActionHead` interprets, and values [B].
"""

REMEMBERS = ("gru", "lstm")
"""Recurrent networks."""
BUILT_IN = (*REMEMBERS, "impala_cnn", "mlp", "nature_cnn")
"""Functions of `muster.nets.builtin` for Q-learners; `muster.nets.build_policy` has policies."""

MOST_DEPTH = 1_202
"""Greatest depth of a residual network: the deepest of He et al. 2015."""

_models: dict[str, Factory] = {}


def resnet_depth(name: str) -> int | None:
    """Return the depth in names such as `resnet20`, with or without a norm; None for others.

    Raises:
        OptionError: There is no residual network of this depth; the message names the nearest.
    """
    found = EncoderName.of(name)
    if found is None or not found.base.startswith("resnet"):
        return None
    depth = int(found.base.removeprefix("resnet"))
    blocks = min(max(round((depth - 2) / 6), 1), (MOST_DEPTH - 2) // 6)
    if depth != 6 * blocks + 2:
        raise OptionError(
            f"there is no model {name!r}",
            f"a residual network has 6n + 2 layers, from 8 to {MOST_DEPTH}: 8, 20, 32, 44, 56",
            f'model="resnet{6 * blocks + 2}"',
        )
    return depth


def is_built_in(name: str) -> bool:
    """Whether a name is one of muster's own networks."""
    return name in BUILT_IN or resnet_depth(name) is not None or EncoderName.of(name) is not None


def register_model(name: str, factory: Factory) -> None:
    """Register the network that `factory(obs_space, n_outputs)` builds as `model=name`.

    Args:
        name: Any name that is not in use.
        factory: A class or function. It is called with torch's global generator seeded for it, so
            layers may draw their weights as usual; afterwards the global state is restored.
    """
    if not name or not isinstance(name, str):
        raise OptionError(
            f"name={name!r} is not possible",
            "a model is registered under a name",
            'register_model("my_net", MyNet)',
        )
    _check_factory(factory)
    if name in BUILT_IN or EncoderName.of(name) is not None:
        raise OptionError(
            f"the model {name!r} is built into muster",
            "with two networks under one name, a config would be ambiguous",
            f'register_model("my_{name}", ...)',
        )
    known = _models.get(name)
    if known is not None and known is not factory:
        raise OptionError(
            f"the model {name!r} is already registered, as {known!r}",
            "with two networks under one name, a config would be ambiguous",
            f'register_model("{name}_2", ...)',
        )
    _models[name] = factory


def replace_model(name: str, factory: Factory) -> None:
    """Register a network, also under an existing name: a notebook cell may run again."""
    _models.pop(name, None)
    register_model(name, factory)


def is_registered(name: str) -> bool:
    """Whether `register_model` was called for this name."""
    return name in _models


def own_names() -> list[str]:
    """Return the names of registered networks, except those of the form module:Class."""
    return [name for name in _models if ":" not in name]


def check_name(name: str) -> None:
    """Raise OptionError if no model has this name; the message names the nearest."""
    if name in _models or is_built_in(name):
        return
    known = sorted((*own_names(), *BUILT_IN))
    near = nearest(name, (*known, "resnet8", "resnet20", "resnet56"))
    raise OptionError(
        f"there is no model {name!r:.120}",
        f"there are {', '.join(known)}, resnet20, module:Class",
        'model="{}"'.format(near or "my_module:MyNetwork"),
    )


def get_model(model: str | Factory) -> Factory:
    """Return the factory of a network: the one with this name, or the one that was passed."""
    if not isinstance(model, str):
        _check_factory(model)
        return model
    check_name(model)
    if model in _models:
        return _models[model]
    name = "residual" if EncoderName.of(model) is not None else model
    built_in: Factory = getattr(importlib.import_module("muster.nets.builtin"), name)
    return functools.partial(built_in, model=model) if name == "residual" else built_in


def _check_factory(factory: object) -> None:
    from torch import nn

    if isinstance(factory, nn.Module):
        name = type(factory).__name__
        raise OptionError(
            f"the model is a {name} that is already built",
            "muster builds the model itself, so that the seed determines its weights",
            f"model={name}, or model=lambda obs_space, n_actions: {name}(...)",
        )
    if not callable(factory):
        raise OptionError(
            f"the model is {factory!r}, which cannot be called",
            "it must be a class or function of (obs_space, n_actions)",
            "model=MyNetwork",
        )
