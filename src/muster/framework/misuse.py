"""Refuses what is not a middleware (or a listener, or a wrapper), with the line that fixes it.

Everything here runs before the first loop, except `check_result`, which sees what a middleware
returned.
"""

import inspect
from collections.abc import Callable
from types import AsyncGeneratorType, CoroutineType, FunctionType, GeneratorType
from typing import Any

from muster.errors import MiddlewareError
from muster.framework.names import name_of


def check_middleware(fn: object) -> None:
    """Raise MiddlewareError unless `fn` can be called with a context and nothing else."""
    if isinstance(fn, GeneratorType | CoroutineType | AsyncGeneratorType):
        name = fn.__name__
        if isinstance(fn, CoroutineType):
            fn.close()  # or Python warns, later and elsewhere, that nobody awaited it
        raise MiddlewareError(
            f"use() got the result of calling {name!r}, not the middleware itself",
            "a middleware is called by the task, once in every loop",
            f"task.use({name})",
        )
    if not callable(fn):
        raise MiddlewareError(
            f"use() got {fn!r}, which cannot be called",
            "the middleware was called with ctx, or its factory forgot to return the inner one",
            "task.use(collect(...)), where collect returns a function of ctx",
        )
    name = name_of(fn)
    if isinstance(fn, type):
        raise MiddlewareError(
            f"use() got the class {name!r}, not an object of it",
            "calling a class with ctx would only build an object in every loop",
            f"task.use({name}(...))",
        )
    problem = _call_problem(fn)
    if problem:
        raise MiddlewareError(
            f"use() got {name!r}, which cannot be called with ctx alone: {problem}",
            "a middleware takes one argument, ctx; other parameters need defaults",
            f"task.use({name}(...)) if {name!r} makes the middleware, else def {name}(ctx): ...",
        )


def _call_problem(fn: Callable[..., Any]) -> str | None:
    """Say why `fn(ctx)` would fail, or None."""
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):  # some C functions do not tell
        return None
    try:
        signature.bind(None)
    except TypeError as error:
        return str(error)
    return None


def check_result(name: str, result: object) -> None:
    """Raise MiddlewareError if a middleware turns out to be a factory that was not called."""
    if isinstance(result, FunctionType):
        raise MiddlewareError(
            f"{name!r} returned the function {result.__name__!r} when it was called with ctx",
            f"{name!r} makes a middleware, and what it makes was never used",
            f"task.use({name}(...))",
        )


def returns_rest(fn: object) -> bool:
    """Whether calling `fn` certainly returns something that still has to be driven or awaited."""
    call = fn if inspect.isroutine(fn) else getattr(fn, "__call__", fn)  # noqa: B004
    return (
        inspect.isgeneratorfunction(call)
        or inspect.iscoroutinefunction(call)
        or inspect.isasyncgenfunction(call)
    )


def refuse_swallowed_rest(name: str, call: Callable[[Any], object]) -> Callable[[Any], object]:
    """Watch over a wrapper of a generator or coroutine: if it drops the result, nothing runs."""

    def watched(ctx: Any) -> object:
        result = call(ctx)
        if result is None:
            raise MiddlewareError(
                f"a step wrapper lost the generator or coroutine of {name!r}",
                f"calling {name!r} only creates it; the task has to get it, to run it",
                "end the wrapper with: return fn(ctx)",
            )
        return result

    return watched


def check_listener(fn: object) -> None:
    """Raise MiddlewareError unless `fn` can be called when an event arrives."""
    if not callable(fn):
        raise MiddlewareError(
            f"a listener has to be callable, not {fn!r}",
            "probably it was called instead of passed",
            "task.on('exit', save), without brackets after save",
        )
    if returns_rest(fn):
        raise MiddlewareError(
            f"the listener {name_of(fn)!r} is a generator or an async function",
            "a listener is called and done; nobody would drive or await what it returns",
            f"def {name_of(fn)}(...): ...",
        )
