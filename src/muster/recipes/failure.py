"""What is left of a run that failed: its traceback in `logs/`, and an error that names the file."""

import contextlib
import traceback

from muster.engines.logs import append
from muster.errors import MusterError, NodeError, raised_at, summary
from muster.run import RunDirectory

_LOG = "main.log"
"""Beside `node.<id>.log`: of what failed in the process that started the run."""
_NOTE = "the traceback is in "


class RunError(MusterError):
    """A run ended with, or did not begin because of, an exception that is none of muster's own."""


def keep_failure(error: Exception, run: RunDirectory) -> None:
    """Write the traceback of what ended a run to its logs, and have the error name the file.

    What a node raised is in that node's log already. A result that another node wrote when it was
    told to end is none: the run has failed.
    """
    with contextlib.suppress(OSError):
        run.forget_result()
    if isinstance(error, MusterError):
        error.run_failed = True
    if isinstance(error, NodeError):
        return
    file = run.logs / _LOG
    if not append(file, "".join(traceback.format_exception(error))):
        return
    if isinstance(error, MusterError):
        what, why, fix = error.args
        error.args = what, why, f"{fix}; look into {file}"
    else:
        error.add_note(f"{_NOTE}{file}")


def as_run_error(error: Exception) -> RunError:
    """Return what the command line says of an exception of somebody else's code."""
    why = f"it comes from {raised_at(error)}"
    for note in getattr(error, "__notes__", ()):
        if note.startswith(_NOTE):
            file = note.removeprefix(_NOTE)
            found = RunError(f"the run ended with {summary(error)}", why, f"look into {file}")
            found.run_failed = True
            return found
    return RunError(f"the run did not begin: {summary(error)}", why, "look at that line")
