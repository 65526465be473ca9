"""Distributed deep-RL training: write the loop once as middleware, run it anywhere.

Importing muster loads nothing: each name imports its module on first use. So the command line
handles Ctrl-C, and reports a typo, a few milliseconds after Python has started.
"""

from muster.lazy import load_when_asked_for
from muster.version import __version__

TYPE_CHECKING = False  # True to type checkers; `typing` takes longer to import than all else here
if TYPE_CHECKING:
    from muster.errors import (
        ClusterError,
        MiddlewareError,
        MusterError,
        MusterWarning,
        NodeError,
        OptionError,
        RunCancelled,
        TaskError,
    )
    from muster.exporting.export import export
    from muster.fitting.fit import fit
    from muster.framework import AbsentKeyError, Context, Middleware, Parallel, StepWrapper, Task
    from muster.framework.wrapper import StepTimer
    from muster.planning.plan import plan
    from muster.recipes.algorithms import register_algorithm
    from muster.recipes.policy import load_policy
    from muster.recipes.train import resume, train
    from muster.recipes.trainer import Trainer
    from muster.report.comparing import compare
    from muster.report.listing import runs
    from muster.serving.server import serve_env
    from muster.tuning.seeds import train_seeds
    from muster.tuning.tune import tune

__all__ = [
    "AbsentKeyError",
    "ClusterError",
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
    "Trainer",
    "__version__",
    "compare",
    "export",
    "fit",
    "load_policy",
    "plan",
    "register_algorithm",
    "resume",
    "runs",
    "serve_env",
    "train",
    "train_seeds",
    "tune",
]

_HOMES = {
    "muster.errors": (
        "ClusterError",
        "MiddlewareError",
        "MusterError",
        "MusterWarning",
        "NodeError",
        "OptionError",
        "RunCancelled",
        "TaskError",
    ),
    "muster.exporting.export": ("export",),
    "muster.fitting.fit": ("fit",),
    "muster.framework": (
        "AbsentKeyError",
        "Context",
        "Middleware",
        "Parallel",
        "StepWrapper",
        "Task",
    ),
    "muster.framework.wrapper": ("StepTimer",),
    "muster.planning.plan": ("plan",),
    "muster.recipes.algorithms": ("register_algorithm",),
    "muster.recipes.policy": ("load_policy",),
    "muster.recipes.train": ("resume", "train"),
    "muster.recipes.trainer": ("Trainer",),
    "muster.report.comparing": ("compare",),
    "muster.report.listing": ("runs",),
    "muster.serving.server": ("serve_env",),
    "muster.tuning.seeds": ("train_seeds",),
    "muster.tuning.tune": ("tune",),
}
"""Module -> the names of this package that it defines."""


__getattr__ = load_when_asked_for(
    __name__, {name: module for module, names in _HOMES.items() for name in names}
)


def __dir__() -> list[str]:
    return __all__
