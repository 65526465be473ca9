"""Distributed deep-RL training: write the loop once as middleware, run it anywhere.

Importing this loads neither torch nor ray; each is loaded by the part that needs it.
"""

from typing import TYPE_CHECKING, Any

from muster.errors import (
    MiddlewareError,
    MusterError,
    MusterWarning,
    OptionError,
    RunCancelled,
    TaskError,
)
from muster.framework import AbsentKeyError, Context, Middleware, StepWrapper, Task
from muster.framework.wrapper import StepTimer

if TYPE_CHECKING:
    from muster.recipes.policy import load_policy
    from muster.recipes.train import train

__version__ = "0.1.0"

__all__ = [
    "AbsentKeyError",
    "Context",
    "Middleware",
    "MiddlewareError",
    "MusterError",
    "MusterWarning",
    "OptionError",
    "RunCancelled",
    "StepTimer",
    "StepWrapper",
    "Task",
    "TaskError",
    "__version__",
    "load_policy",
    "train",
]

_LOADED_WHEN_ASKED_FOR = {
    "load_policy": "muster.recipes.policy",
    "train": "muster.recipes.train",
}
"""What needs torch, and the module that it is in."""


def __getattr__(name: str) -> Any:
    if name not in _LOADED_WHEN_ASKED_FOR:
        raise AttributeError(f"module 'muster' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_LOADED_WHEN_ASKED_FOR[name]), name)
