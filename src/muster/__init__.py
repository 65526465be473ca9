"""Distributed deep-RL training: write the loop once as middleware, run it anywhere.

Importing this loads neither torch nor ray; each is loaded by the part that needs it.
"""

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
]
