"""Distributed deep-RL training: write the loop once as middleware, run it anywhere.

Importing this loads nothing: each name loads the part that it is in when it is asked for. So the
command line listens to Ctrl-C, and answers a typo, a few milliseconds after Python has started.
"""

from typing import TYPE_CHECKING, Any

from muster.version import __version__

if TYPE_CHECKING:
    from muster.errors import (
        MiddlewareError,
        MusterError,
        MusterWarning,
        NodeError,
        OptionError,
        RunCancelled,
        TaskError,
    )
    from muster.framework import AbsentKeyError, Context, Middleware, Parallel, StepWrapper, Task
    from muster.framework.wrapper import StepTimer
    from muster.recipes.policy import load_policy
    from muster.recipes.train import train

__all__ = [
    "AbsentKeyError",
    "Context",
    "Middleware",
    "MiddlewareError",
    "MusterError",
    "MusterWarning",
    "NodeError",
    "OptionError",
    "Parallel",
    "RunCancelled",
    "StepTimer",
    "StepWrapper",
    "Task",
    "TaskError",
    "__version__",
    "load_policy",
    "train",
]

_HOMES = {
    "muster.errors": (
        "MiddlewareError",
        "MusterError",
        "MusterWarning",
        "NodeError",
        "OptionError",
        "RunCancelled",
        "TaskError",
    ),
    "muster.framework": (
        "AbsentKeyError",
        "Context",
        "Middleware",
        "Parallel",
        "StepWrapper",
        "Task",
    ),
    "muster.framework.wrapper": ("StepTimer",),
    "muster.recipes.policy": ("load_policy",),
    "muster.recipes.train": ("train",),
}
"""Module: the names of this package that are in it."""


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            import importlib

            value = getattr(importlib.import_module(module), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module 'muster' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
