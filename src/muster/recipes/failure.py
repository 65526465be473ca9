"""What a failed run leaves: its traceback in `logs/`, and an error that names the file."""

import contextlib
import traceback

from muster.engines.logs import append
from muster.errors import MusterError, NodeError, raised_at, summary
from muster.run import RunDirectory

_LOG = "main.log"
"""Next to `node.<id>.log`: failures in the process that started the run."""
_NOTE = "the traceback is in "


class RunError(MusterError):
    """An exception that is not muster's own ended a run, or prevented it from starting."""


def keep_failure(error: Exception, run: RunDirectory) -> None:
    """Write the traceback of a failed run to its logs, and add the file's name to the error.

    The traceback of a node's failure is already in that node's log. The result that another node
    may have written when it was told to end is deleted, because the run has failed.
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
        error.args = what, why, f"{fix}; see {file}"
    else:
        error.add_note(f"{_NOTE}{file}")


def as_run_error(error: Exception) -> RunError:
    """Return the error that the command line shows for an exception from outside muster."""
    why = f"it comes from {raised_at(error)}"
    for note in getattr(error, "__notes__", ()):
        if note.startswith(_NOTE):
            file = note.removeprefix(_NOTE)
            found = RunError(f"the run ended with {summary(error)}", why, f"see {file}")
            found.run_failed = True
            return found
    return RunError(f"the run did not begin: {summary(error)}", why, "check that line")
