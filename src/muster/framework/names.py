"""What a middleware is called in tables, notes and messages: what its author can search for."""

import functools
import inspect
from contextvars import ContextVar

BEING_WRAPPED: ContextVar[str | None] = ContextVar("muster_being_wrapped", default=None)
"""While a task puts wrappers around a middleware: the name of the middleware. What a wrapper gets
may be another wrapper's function, whose own name says nothing."""


def name_of(fn: object) -> str:
    """Return a function's name, seen through partials and decorators, or an object's class name."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    name = getattr(fn, "__name__", None)
    if not isinstance(name, str):
        return type(fn).__name__
    return name


def unwrapped(fn: object) -> object:
    """Return what a partial calls, or the function itself of a callable object."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    return fn if inspect.isroutine(fn) else getattr(fn, "__call__", fn)  # noqa: B004
