"""What a caller gives to `muster.train` and its like, as a run's file can hold it."""

from typing import Any

from muster.recipes.env_options import WRAPPERS, texts_of_kwargs
from muster.recipes.hooks import HOOKS
from muster.recipes.models import name_of_model
from muster.recipes.settings import plain_value

_NAMED = {
    "env_kwargs": texts_of_kwargs,
    "model": name_of_model,
    "use": HOOKS.names,
    "wrapper": WRAPPERS.names,
}
"""Options that may be given as code or as a dict: each is registered, and written as text."""


def as_written(options: dict[str, Any]) -> dict[str, Any]:
    """Return options by plain values, with code by its name."""
    named = {
        name: _NAMED[name](value) if name in _NAMED else value for name, value in options.items()
    }
    return {name: plain_value(value) for name, value in named.items()}
