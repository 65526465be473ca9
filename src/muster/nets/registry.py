"""Networks by name: what `model="..."` in a config or on the command line may say."""

import difflib
from collections.abc import Callable

from torch import nn

from muster.errors import OptionError

Factory = Callable[..., nn.Module]
"""Called with (obs_space, n_actions); returns a module from observations to Q [B, n_actions]."""

_models: dict[str, Factory] = {}


def register_model(name: str, factory: Factory) -> None:
    """Let `model=name` mean the network that `factory(obs_space, n_actions)` builds.

    Args:
        name: Any name that is not taken by something else.
        factory: A class or function. It is called with torch's global generator seeded for it, so
            layers may draw their weights as usual; the global state is put back afterwards.
    """
    if not name or not isinstance(name, str):
        raise OptionError(
            f"name={name!r} is not possible",
            "a model is asked for by its name",
            'register_model("my_net", MyNet)',
        )
    _check_factory(factory)
    known = _models.get(name)
    if known is not None and known is not factory:
        raise OptionError(
            f"the model {name!r} is registered already, as {known!r}",
            "two networks under one name would make a config mean two things",
            f'register_model("{name}_2", ...)',
        )
    _models[name] = factory


def get_model(model: str | Factory) -> Factory:
    """Return what builds a network: the factory of that name, or the one that was passed."""
    if not isinstance(model, str):
        _check_factory(model)
        return model
    if model in _models:
        return _models[model]
    near = difflib.get_close_matches(model, _models, n=1, cutoff=0.5)
    raise OptionError(
        f"there is no model {model!r}",
        f"registered are {', '.join(map(repr, sorted(_models)))}"
        if _models
        else "no model was registered; register_model has to run before the network is built",
        f'model="{near[0]}"' if near else f'register_model("{model}", MyNetwork)',
    )


def _check_factory(factory: object) -> None:
    if isinstance(factory, nn.Module):
        name = type(factory).__name__
        raise OptionError(
            f"the model is a {name} that was built already",
            "muster builds it itself, so that the seed decides its weights",
            f"model={name}, or model=lambda obs_space, n_actions: {name}(...)",
        )
    if not callable(factory):
        raise OptionError(
            f"the model is {factory!r}, which cannot be called",
            "it has to be a class or function of (obs_space, n_actions)",
            "model=MyNetwork",
        )
