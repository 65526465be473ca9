"""Packages whose names are imported when they are asked for: a typo need not wait for torch.

A type checker and a reader see plain imports, under `if TYPE_CHECKING:`.
"""

import importlib

TYPE_CHECKING = False  # True to type checkers; this is loaded before the command hears Ctrl-C
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any


def load_when_asked_for(package: str, modules: "Mapping[str, str]") -> "Callable[[str], Any]":
    """Return the `__getattr__` of a package.

    Args:
        package: Its `__name__`.
        modules: A name that it has, and the module that this name is in. No module of the package
            may be called like such a name: once it is imported it would stand in its place.
    """

    def __getattr__(name: str) -> "Any":
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(modules[name]), name)

    return __getattr__
