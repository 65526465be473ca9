"""The exceptions and warnings that muster itself raises.

    MusterError
    ├── MiddlewareError   (TypeError)     the task was given an object that is not a middleware
    ├── TaskError         (RuntimeError)  the task cannot do this, or not in its present state
    ├── OptionError       (ValueError)    an argument has an invalid value
    ├── NodeError         (RuntimeError)  a node of a parallel run raised, died or hung
    ├── ClusterError      (RuntimeError)  the run lost its cluster
    ├── RunCancelled                      a wait ended because the run is being stopped
    └── AbsentKeyError    (AttributeError, KeyError)  a key of ctx; in muster.framework.context

Each message has three parts: what happened, why, and one line to try. Exceptions from a user's own
middleware are never replaced by one of these; they leave `Task.run` unchanged, with a note.
"""

import sys
import traceback
import warnings
from pathlib import Path
from typing import Any, TextIO


class MusterError(Exception):
    """Base class of muster's own exceptions.

    Args:
        what: What happened, with the value that caused it.
        why: The likely cause.
        fix: One line to try, as the user would type it.
    """

    run_failed = False
    """Whether a run had begun: the command line then exits with 1, and with 2 for invalid input."""

    def __init__(self, what: str, why: str, fix: str) -> None:
        super().__init__(what, why, fix)
        # OSError interprets its arguments as errno and strerror, and keeps two of three.
        self.args = (what, why, fix)

    def __str__(self) -> str:
        what, why, fix = self.args
        return f"{what}\n  why: {why}\n  try: {fix}"


class MiddlewareError(MusterError, TypeError):
    """A task was given an object that cannot run as a middleware, listener or wrapper."""


class TaskError(MusterError, RuntimeError):
    """A task was asked for something that it cannot do in its present state."""


class OptionError(MusterError, ValueError):
    """An argument has an invalid value."""


class RunCancelled(MusterError):
    """A wait inside a middleware was ended, because the run is being stopped."""


class NodeError(MusterError, RuntimeError):
    """A node of a parallel run ended it.

    Attributes:
        node: Its id.
        role: Its role, if it has one.
        cause: `raised` an exception, was `killed` or just exited, or was `hung`.
        remote_traceback: The traceback on that node; empty for the other causes.
    """

    run_failed = True

    def __init__(
        self,
        what: str,
        why: str,
        fix: str,
        *,
        node: int,
        role: str | None,
        cause: str,
        remote_traceback: str = "",
    ) -> None:
        super().__init__(what, why, fix)
        self.node = node
        self.role = role
        self.cause = cause
        self.remote_traceback = remote_traceback
        if remote_traceback:
            self.add_note(f"on node {node}:\n{remote_traceback}")


class ClusterError(MusterError, RuntimeError):
    """The run lost its cluster, or the cluster failed."""

    run_failed = True


class MusterWarning(UserWarning):
    """Category of all of muster's own warnings."""


def show_warnings_plainly() -> None:
    """Print muster's own warnings on one line each, without a location in muster's source.

    For muster's own processes: commands and nodes. A user's script keeps Python's format.
    """
    usual = warnings.showwarning

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> Any:
        if not issubclass(category, MusterWarning):
            return usual(message, category, filename, lineno, file, line)
        return print(f"muster: {message}", file=file or sys.stderr, flush=True)

    warnings.showwarning = show


def summary(error: BaseException) -> str:
    """Return an exception's type and message on one line; never fails."""
    try:
        message = error.args[0] if isinstance(error, MusterError) else str(error)
    except Exception:
        message = "(its message cannot be shown)"
    return f"{type(error).__name__}: {' '.join(str(message).split())}".removesuffix(": ")


def raised_at(error: BaseException) -> str:
    """Return the file and line that raised an exception, as far as known."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return "an unknown place"
    last = frames[-1]
    return f"{Path(last.filename).name}:{last.lineno} ({last.name})"
