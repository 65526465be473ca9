"""`muster VERB ...`: finds the verb, and turns errors into three lines and an exit code.

Exit codes: 0 done, 1 a run failed, 2 bad input, 130, 143 and 129 after Ctrl-C, SIGTERM and SIGHUP.
"""

import contextlib
import functools
import importlib
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import Any

from muster.cli.leaving import leave_at_once_on_signals, leave_with, name_processes_left
from muster.cli.output import forgiving_output
from muster.errors import MusterError, OptionError, show_warnings_plainly
from muster.shown import program
from muster.spelling import nearest
from muster.version import __version__

VERBS = {
    "train": "train an agent",
    "tune": "try many settings, and find the best of them",
    "fit": "train a network on labelled data",
    "resume": "resume a run, by its directory",
    "eval": "measure mean and spread of the return of a saved policy",
    "play": "show or record a saved policy",
    "export": "write a saved policy into one ONNX or torch file",
    "runs": "list the runs in a folder, or show how two of them differ",
    "compare": "test whether some runs are better than others, over their seeds",
    "report": "write one HTML page about runs",
    "watch": "show the page of a run, live in a browser on this machine",
    "serve-env": "serve an environment to runs elsewhere",
    "bench": "measure how fast a recipe trains here, how fast it could, and why",
    "plan": "predict how fast more workers and machines would train, and why",
    "algos": "list the algorithms",
    "models": "list the networks that have a name",
    "envs": "list the environments that are installed",
    "doctor": "check this machine, what limits training, and an environment",
    "completion": "print a script for your shell: the Tab key completes commands",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code.

    Args:
        argv: The words after `muster`. None for the command line of this process, which then also
            exits at once on a signal, and does not wait for threads and processes of users' code.
    """
    if argv is not None:
        return _answer(list(argv))
    leave_at_once_on_signals()
    name_processes_left()
    show_warnings_plainly()
    code = 1
    try:
        code = _answer(sys.argv[1:])
    except SystemExit as asked:
        code = asked.code if isinstance(asked.code, int) else int(asked.code is not None)
        raise
    finally:
        leave_with(code)
    return code


def _answer(arguments: list[str]) -> int:
    """Run a command line, and turn an error into three lines and an exit code."""
    try:
        with forgiving_output():
            return _obey(arguments)
    except MusterError as error:
        _complain(error)
        return 1 if error.run_failed else 2
    except KeyboardInterrupt:
        return 130


def _obey(arguments: list[str]) -> int:
    """Find the verb and run it."""
    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:2], "--help"]
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_help())
        return 0
    if arguments[0] in ("--version", "-V"):
        print(f"muster {__version__}")
        return 0
    verb, *rest = arguments
    _check_folder()
    if verb not in VERBS:
        near = nearest(verb, VERBS)
        raise OptionError(
            f"there is no verb {verb!r:.80}",
            f"there are: {', '.join(VERBS)}",
            f"muster {near or 'train dqn CartPole-v1'}",
        )
    # The verb's module is imported only now, so that a typo is reported before torch is imported.
    code: int = module_of(verb).main(rest)
    return code


def module_of(verb: str) -> Any:
    """Import and return the module of a verb."""
    return importlib.import_module(f"muster.cli.{verb.replace('-', '_')}")


def _check_folder() -> None:
    """Reject a current folder that was removed: libraries would end the process because of it."""
    try:
        os.getcwd()
    except OSError as error:
        why = "it was removed, or is not readable any more"
        raise OptionError(
            f"the current folder does not exist any more: {error.strerror}", why, "cd ~"
        ) from None


def _complain(error: MusterError) -> None:
    with contextlib.suppress(OSError, ValueError, AttributeError):  # the output may be closed
        text = f"muster: {_on_three_lines(error)}"
        sys.stderr.write(f"{_folded(text) if sys.stderr.isatty() else text}\n")
        sys.stderr.flush()


def _folded(text: str) -> str:
    """Wrap a message at words, except the last line, which is there to be copied.

    A terminal would wrap it within words.
    """
    *said, to_try = text.splitlines()
    columns = shutil.get_terminal_size().columns
    fold = functools.partial(
        textwrap.fill,
        width=columns,
        subsequent_indent=" " * len("  why: "),
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join([*map(fold, said), to_try])


def _on_three_lines(error: MusterError) -> str:
    """Return the message of an error on three lines; a quoted message may have had more.

    Paths and the command to try are written the way they are typed here.
    """
    what, why, fix = (_from_here(" ".join(part.split())) for part in error.args)
    called = re.compile(rf"(?<![\w/])(?:muster(?= (?:{'|'.join(VERBS)})\b)|pip(?= install))")
    return str(MusterError(what, why, called.sub(lambda found: program(found[0]), fix)))


def _from_here(text: str) -> str:
    """Remove the current folder from the paths in a text."""
    try:
        here = os.getcwd()
    except OSError:
        return text
    return text if here == "/" else re.sub(rf"(?<![\w./~-]){re.escape(here)}/", "", text)


def _help() -> str:
    width = max(map(len, VERBS))
    rows = "\n".join(f"  {verb:{width}} {what}" for verb, what in VERBS.items())
    return (
        "usage: muster VERB ...\n\n"
        f"{rows}\n\n"
        "Every verb has --help. The first agent: muster train ppo CartPole-v1"
    )


if __name__ == "__main__":
    raise SystemExit(main())
