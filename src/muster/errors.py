"""The exceptions and warnings that muster raises itself.

    MusterError
    ├── MiddlewareError   (TypeError)     what was given to the task is no middleware
    ├── TaskError         (RuntimeError)  the task is used in a way or at a time it cannot be
    ├── OptionError       (ValueError)    an argument has a value that makes no sense
    ├── NodeError         (RuntimeError)  a node of a parallel run raised, died or hung
    ├── ClusterError      (RuntimeError)  the cluster that a run was on is lost
    ├── RunCancelled                      a wait ended because the run is being stopped
    └── AbsentKeyError    (AttributeError, KeyError)  a key of ctx; in muster.framework.context

Each message has three parts: what happened, why, and one line to try. Exceptions from a user's own
middleware are never replaced by one of these; they leave `Task.run` as they are, with a note.
"""

import sys
import traceback
import warnings
from pathlib import Path
from typing import Any, TextIO


class MusterError(Exception):
    """Base of every exception of muster's own.

    Args:
        what: What happened, with the value that caused it.
        why: The likely cause.
        fix: One line to try, as the user would type it.
    """

    run_failed = False
    """Whether a run had begun: what the command line then ends with is 1, and 2 for bad input."""

    def __init__(self, what: str, why: str, fix: str) -> None:
        super().__init__(what, why, fix)
        # An OSError takes its arguments for errno and strerror, and keeps two of three.
        self.args = (what, why, fix)

    def __str__(self) -> str:
        what, why, fix = self.args
        return f"{what}\n  why: {why}\n  try: {fix}"


class MiddlewareError(MusterError, TypeError):
    """Something that cannot run as a middleware, listener or wrapper was given to a task."""


class TaskError(MusterError, RuntimeError):
    """A task was asked for something that it cannot do in its present state."""


class OptionError(MusterError, ValueError):
    """An argument has a value outside what it may be."""


class RunCancelled(MusterError):
    """A wait inside a middleware was ended, because the run is being stopped."""


class NodeError(MusterError, RuntimeError):
    """A node of a parallel run ended it.

    Attributes:
        node: Its id.
        role: Its role, if it has one.
        cause: `raised` an exception, was `killed` or just exited, or was `hung`.
        remote_traceback: Of the exception, as the node saw it; empty for the other causes.
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
    """The cluster that a run was on is lost, or fails it."""

    run_failed = True


class MusterWarning(UserWarning):
    """Category of every warning of muster's own."""


def show_warnings_plainly() -> None:
    """Print warnings of muster's own as one line each, without a place in muster's source.

    For processes that are muster's own: commands and nodes. A script keeps Python's format.
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
    """Return an exception's type and message on one line, whatever its message is."""
    try:
        message = error.args[0] if isinstance(error, MusterError) else str(error)
    except Exception:
        message = "(its message cannot be shown)"
    return f"{type(error).__name__}: {' '.join(str(message).split())}".removesuffix(": ")


def raised_at(error: BaseException) -> str:
    """Return the file and line that an exception comes from, as far as that is known."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return "an unknown place"
    last = frames[-1]
    return f"{Path(last.filename).name}:{last.lineno} ({last.name})"
