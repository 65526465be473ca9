"""Makes a `main` ready for new processes, or rejects it and shows the line to change.

A new process imports the program's file to find `main`. A `main` that was typed in, as in a cell of
a notebook, is in no file: it travels by value, over the pipe that the process inherits.
"""

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


def sendable(
    main: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """Return `main` and its arguments in a form that can be sent to a new process.

    Raises:
        OptionError: They cannot be sent.
    """
    if not callable(main):
        raise OptionError(
            f"the runner got {main!r}, which cannot be called",
            "the runner calls the function on every node; main() calls it here",
            "Parallel.runner(...)(main), and arguments after it: (main, cfg)",
        )
    if getattr(current_process(), "_inheriting", False):
        raise _no_guard("a runner started this process, which has reached the same line again")
    if _is_typed_in(main):
        return _checked(TypedIn(main, args, kwargs)), (), {}
    _check_main_module(main)
    _check_can_be_pickled(main, args, kwargs)
    return main, args, dict(kwargs)


class TypedIn:
    """A `main` from a notebook, with its arguments, and all that it uses from cells.

    Args:
        main: The function.
        args: Its arguments.
        kwargs: Its arguments by name.
    """

    def __init__(
        self, main: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> None:
        self._call = main, args, dict(kwargs)

    def __call__(self) -> Any:
        """Call `main`."""
        main, args, kwargs = self._call
        return main(*args, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        import cloudpickle  # only notebooks need it

        return _restored, (cloudpickle.dumps(self._call),)

    def __str__(self) -> str:
        return name_of(self._call[0])


def _checked(typed_in: TypedIn) -> TypedIn:
    try:
        ForkingPickler.dumps(typed_in)
    except Exception as error:
        raise OptionError(
            f"{str(typed_in)!r} or an argument of it cannot be sent to a new process",
            f"Python says: {error}",
            "make inside of it what cannot be sent, or pass what that is made of",
        ) from None
    return typed_in


def _restored(data: bytes) -> TypedIn:
    import cloudpickle

    return TypedIn(*cloudpickle.loads(data))


def _is_typed_in(main: object) -> bool:
    """Whether `main` is from a main module without a file, such as that of a notebook."""
    if getattr(main, "__module__", None) != "__main__":
        return False
    file = getattr(sys.modules["__main__"], "__file__", None)
    return file is None or not Path(file).is_file()


def _check_main_module(main: Callable[..., Any]) -> None:
    """A new process imports the program's file, so importing it must not start the run again."""
    if getattr(main, "__module__", None) != "__main__":
        return
    file = Path(str(sys.modules["__main__"].__file__))
    if not _only_guarded(file):
        raise _no_guard(f"a new process imports {file.name}, and would start the run again")


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
