"""The name of a middleware in tables, notes and messages: one that its author can search for."""

import functools
import inspect
from contextvars import ContextVar

BEING_WRAPPED: ContextVar[str | None] = ContextVar("muster_being_wrapped", default=None)
"""The name of the middleware around which a task is putting wrappers. A wrapper may receive another
wrapper's function, whose own name is uninformative."""


def name_of(fn: object) -> str:
    """Return a function's name, looking through partials and decorators, or an object's class."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    name = getattr(fn, "__name__", None)
    if not isinstance(name, str):
        return type(fn).__name__
    return name


def unwrapped(fn: object) -> object:
    """Return the function that a partial or a callable object calls."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    return fn if inspect.isroutine(fn) else getattr(fn, "__call__", fn)  # noqa: B004
