"""Rejects a `main` that a new process could not run, and shows the line to change."""

import ast
import sys
from collections.abc import Callable, Mapping
from multiprocessing import current_process
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

from muster.errors import OptionError
from muster.framework.names import name_of

GUARD = 'if __name__ == "__main__":'


def check_main(main: object, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Raise OptionError unless `main` and its arguments can be sent to a new process."""
    if not callable(main):
        raise OptionError(
            f"the runner got {main!r}, which cannot be called",
            "the runner calls the function on every node; main() calls it here",
            "Parallel.runner(...)(main), and arguments after it: (main, cfg)",
        )
    if getattr(current_process(), "_inheriting", False):
        raise _no_guard("a runner started this process, which has reached the same line again")
    _check_main_module(main)
    _check_can_be_pickled(main, args, kwargs)


def _check_main_module(main: Callable[..., Any]) -> None:
    """A new process imports the program's file, so importing it must not start the run again."""
    if getattr(main, "__module__", None) != "__main__":
        return
    file = getattr(sys.modules["__main__"], "__file__", None)
    if file is None or not Path(file).is_file():
        raise OptionError(
            f"{name_of(main)!r} cannot be run in a new process",
            "it was typed interactively, so there is no file that the new process could import",
            f"put it into a file: from my_program import {name_of(main)}",
        )
    if not _only_guarded(Path(file)):
        raise _no_guard(f"a new process imports {Path(file).name}, and would start the run again")


def _only_guarded(file: Path) -> bool:
    """Whether no top-level statement of the file calls a runner without a guard."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return True  # Python could run it somehow; let the new process try too
    plain = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.If)
    return not any(
        isinstance(node, ast.Attribute) and node.attr == "runner"
        for statement in tree.body
        if not isinstance(statement, plain)
        for node in ast.walk(statement)
    )


def _check_can_be_pickled(
    main: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> None:
    named = {"main": main, **{f"argument {n + 1}": value for n, value in enumerate(args)}}
    named.update({f"argument {name!r}": value for name, value in kwargs.items()})
    for what, value in named.items():
        try:
            ForkingPickler.dumps(value)
        except Exception as error:
            shown = f"{name_of(value)!r}" if callable(value) else type(value).__name__
            fix = "def main(): ... at the top of the file, in place of a lambda or inner function"
            if what != "main":
                fix = "create it inside main, or pass the values that it is made from"
            raise OptionError(
                f"{what} ({shown}) cannot be sent to a new process",
                f"Python says: {error}",
                fix,
            ) from None


def _no_guard(why: str) -> OptionError:
    return OptionError("the program has no main guard", why, f"{GUARD} Parallel.runner(...)(main)")
