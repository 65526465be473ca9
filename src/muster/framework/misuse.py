"""Rejects objects that are not a middleware (or listener, or wrapper), and shows how to fix it.

All checks run before the first loop, except `check_result` and the function that
`refuse_swallowed_rest` returns: those two check the result of calling a middleware.
"""

import functools
import inspect
import re
from collections.abc import Callable
from types import AsyncGeneratorType, CoroutineType, FunctionType, GeneratorType, MethodType
from typing import Any

from muster.errors import MiddlewareError
from muster.framework.names import name_of, unwrapped


def check_middleware(fn: object, where: str = "use()") -> None:
    """Raise MiddlewareError unless `fn` can be called with a context and nothing else.

    Args:
        fn: The object that a user passed.
        where: The method that it was passed to, for the message.
    """
    if isinstance(fn, GeneratorType | CoroutineType | AsyncGeneratorType):
        name = fn.__name__
        if isinstance(fn, CoroutineType):
            fn.close()  # or Python warns, later and elsewhere, that it was never awaited
        raise MiddlewareError(
            f"{where} got the result of calling {name!r}, not the middleware itself",
            "a middleware is called by the task, once in every loop",
            f"task.{where[:-1]}{name})",
        )
    if isinstance(fn, list | tuple):
        raise MiddlewareError(
            f"{where} got a {type(fn).__name__}",
            "each call takes one middleware",
            "task.use(a).use(b), or task.serial(a, b)",
        )
    if not callable(fn):
        raise MiddlewareError(
            f"{where} got {fn!r}, which cannot be called",
            "the middleware was called with ctx, or its factory forgot to return the inner one",
            "task.use(collect(...)), where collect returns a function of ctx",
        )
    name = name_of(fn)
    if isinstance(fn, type):
        raise MiddlewareError(
            f"{where} got the class {name!r}, not an object of it",
            "calling a class with ctx would only build an object in every loop",
            f"task.use({name}(...))",
        )
    problem = _call_problem(fn, 1)
    if problem and re.search("'(next|call_next)'$", problem):
        raise MiddlewareError(
            f"{where} got {name!r}, which cannot be called with ctx alone: {problem}",
            "there is no next() to call: code for the way back goes after a yield",
            f"def {name}(ctx): ...; yield; ...",
        )
    if problem:
        raise MiddlewareError(
            f"{where} got {name!r}, which cannot be called with ctx alone: {problem}",
            "a middleware takes one argument, ctx; other parameters need defaults",
            f"task.use({name}(...)) if {name!r} makes the middleware, else def {name}(ctx): ...",
        )


def _call_problem(fn: Callable[..., Any], arguments: int) -> str | None:
    """Return why calling `fn` with so many arguments would fail, or None."""
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):  # some C functions have no signature
        return None
    try:
        signature.bind(*[None] * arguments)
    except TypeError as error:
        return str(error)
    return None


def check_result(name: str, result: object) -> None:
    """Raise MiddlewareError if a middleware turns out to be a factory that was not called."""
    # Not every callable: a lambda may return a network, which is callable too.
    if isinstance(result, FunctionType | MethodType | functools.partial):
        raise MiddlewareError(
            f"{name!r} returned the function {name_of(result)!r} when it was called with ctx",
            f"{name!r} makes a middleware, and the result was never used",
            f"task.use({name}(...))",
        )


def returns_rest(fn: object) -> bool:
    """Whether calling `fn` certainly returns something that still has to be driven or awaited."""
    call = unwrapped(fn)
    return (
        inspect.isgeneratorfunction(call)
        or inspect.iscoroutinefunction(call)
        or inspect.isasyncgenfunction(call)
    )


def refuse_swallowed_rest(name: str, call: Callable[[Any], object]) -> Callable[[Any], object]:
    """Check that a wrapper of a generator or coroutine returns its result, or it would not run."""

    def watched(ctx: Any) -> object:
        result = call(ctx)
        if result is None:
            raise MiddlewareError(
                f"a step wrapper lost the generator or coroutine of {name!r}",
                f"calling {name!r} only creates it; the wrapper must return it to the task",
                "end the wrapper with: return fn(ctx)",
            )
        return result

    return watched


def check_listener(event: str, fn: object) -> None:
    """Raise MiddlewareError unless `fn` can be called when an event arrives."""
    if not callable(fn):
        raise MiddlewareError(
            f"a listener must be callable, not {fn!r}",
            "probably the function was called instead of passed",
            f"task.on({event!r}, save), without brackets after save",
        )
    if returns_rest(fn):
        raise MiddlewareError(
            f"the listener {name_of(fn)!r} is a generator or an async function",
            "a listener is only called; nothing would iterate or await its result",
            f"def {name_of(fn)}(...): ...",
        )
    problem = _call_problem(fn, 0) if event == "exit" else None
    if problem:
        raise MiddlewareError(
            f"the listener {name_of(fn)!r} cannot be called without arguments: {problem}",
            "exit listeners get no arguments, and the call would fail only at the end of the run",
            f"def {name_of(fn)}(): ..., and task.ctx for the last context",
        )
