"""What a middleware is called in tables, notes and messages: what its author can search for."""

import functools
import inspect


def name_of(fn: object) -> str:
    """Return a function's name, seen through partials and wrappers, or an object's class name."""
    while True:
        if isinstance(fn, functools.partial):
            fn = fn.func
        elif hasattr(fn, "__wrapped__"):
            fn = inspect.unwrap(fn)  # type: ignore[arg-type]  # it is callable
        else:
            break
    # A group names itself after its members; functions and classes have a name; objects borrow one.
    name = getattr(fn, "__name__", None)
    return name if isinstance(name, str) else type(fn).__name__
