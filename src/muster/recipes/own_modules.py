"""Code of the user's own by its name, `module:name`: models and algorithms alike.

Code is loaded only for who asks for it by name: on the command line, or in a call. A file, such as
the `config.yaml` of a run, may name it too, but never makes it run.
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
    """Whether this is `module:name`, and not the name of something that is registered."""
    return isinstance(name, str) and ":" in name


def check_spec(kind: str, spec: str, example: str) -> None:
    """Raise OptionError unless `spec` can name a module and something in it."""
    if not all(part.isidentifier() for part in spec.replace(":", ".").split(".")):
        raise OptionError(
            f"the {kind} {spec!r:.120} is not possible",
            f"code of your own is a module and what is the {kind} in it",
            example,
        )


@contextlib.contextmanager
def modules_here() -> Iterator[None]:
    """Let the directory in which muster was started count as a place of modules."""
    here = os.getcwd()
    sys.path.insert(0, here)
    try:
        yield
    finally:
        sys.path.remove(here)


def check_found(kind: str, spec: str) -> None:
    """Raise OptionError if there is no module for `module:name`. Imports nothing."""
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
    """Import what `module:name` names.

    Args:
        kind: What it should be, for messages.
        spec: The module and a name in it, which may have dots.
        example: What to try, with `{}` where the spec goes.

    Raises:
        OptionError: It cannot be imported, or the name is not there.
    """
    module_name, _, name = spec.partition(":")
    try:
        with modules_here():
            module = importlib.import_module(module_name)
    except Exception as error:  # whatever the user's module does, it is named
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
