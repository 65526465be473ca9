"""Converts the options of `muster.train` and similar calls to values that a run's file can hold."""

from typing import Any

from muster.recipes.env_options import WRAPPERS, texts_of_kwargs
from muster.recipes.hooks import HOOKS
from muster.recipes.models import name_of_model
from muster.recipes.settings import plain_value

_NAMED = {
    "env_kwargs": texts_of_kwargs,
    "eval_env_kwargs": texts_of_kwargs,
    "model": name_of_model,
    "use": HOOKS.names,
    "wrapper": WRAPPERS.names,
}
"""Options that accept code or a dict: code is registered, and the option stored as text."""


def as_written(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options as plain values, with code replaced by its name."""
    named = {
        name: _NAMED[name](value) if name in _NAMED else value for name, value in options.items()
    }
    return {name: plain_value(value) for name, value in named.items()}
