"""Packages that import a name on first use, so that a typo is reported before torch is imported.

A type checker and a reader see plain imports, under `if TYPE_CHECKING:`.
"""

import importlib

TYPE_CHECKING = False  # True to type checkers; loaded before the command handles Ctrl-C
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any


def load_when_asked_for(package: str, modules: "Mapping[str, str]") -> "Callable[[str], Any]":
    """Return the `__getattr__` of a package.

    Args:
        package: Its `__name__`.
        modules: Maps each name of the package to the module that defines it. No module of the
            package may have the same name: once imported, it would replace the attribute.
    """

    def __getattr__(name: str) -> "Any":
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(modules[name]), name)

    return __getattr__
