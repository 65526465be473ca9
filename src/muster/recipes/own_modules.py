"""A user's own code by name, `module:name`: models, algorithms, hooks and wrappers.

Code is loaded only for a caller that names it, on the command line or in a function call. A file,
such as the `config.yaml` of a run, may also name code, but never causes it to run.
"""

import contextlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from typing import Any

from muster.errors import OptionError
from muster.spelling import nearest


def is_code(name: object) -> bool:
    """Whether this is `module:name`, and not the name of something registered."""
    return isinstance(name, str) and ":" in name


def check_spec(kind: str, spec: str, example: str) -> None:
    """Raise OptionError unless `spec` can name a module and something in it."""
    if not all(part.isidentifier() for part in spec.replace(":", ".").split(".")):
        raise OptionError(
            f"the {kind} {spec!r:.120} is not possible",
            f"your own code is given as a module and the name of the {kind} in it",
            example,
        )


@contextlib.contextmanager
def modules_here() -> Iterator[None]:
    """Search the directory in which muster was started for modules."""
    here = os.getcwd()
    sys.path.insert(0, here)
    try:
        yield
    finally:
        sys.path.remove(here)


def check_found(kind: str, spec: str) -> None:
    """Raise OptionError if the module of `module:name` does not exist. Imports nothing."""
    package = spec.partition(":")[0].partition(".")[0]
    if package in sys.modules:
        return
    with modules_here():
        importlib.invalidate_caches()
        found = importlib.util.find_spec(package)
    if found is None:
        error = ModuleNotFoundError(f"No module named {package!r}")
        raise _not_loaded(kind, spec, error)


def load_code(kind: str, spec: str, example: str) -> Any:
    """Import the object that `module:name` names.

    Args:
        kind: What the object should be, for messages.
        spec: The module and a name in it, which may contain dots.
        example: The advice, with `{}` for the spec.

    Raises:
        OptionError: The module cannot be imported, or does not have the name.
    """
    module_name, _, name = spec.partition(":")
    try:
        with modules_here():
            module = importlib.import_module(module_name)
    except Exception as error:  # any failure of the user's module: the message names it
        raise _not_loaded(kind, spec, error) from error
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            near = nearest(part, [each for each in vars(found) if not each.startswith("_")])
            raise OptionError(
                f"the {kind} {spec!r} cannot be loaded",
                f"{module_name} has no {part!r}",
                example.format(f"{module_name}:{near or 'my_' + kind}"),
            )
        found = getattr(found, part)
    return found


def _not_loaded(kind: str, spec: str, error: Exception) -> OptionError:
    module = spec.partition(":")[0]
    return OptionError(
        f"the {kind} {spec!r} cannot be loaded",
        f"{type(error).__name__}: {error}",
        f'python -c "import {module}"',
    )
