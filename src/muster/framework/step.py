"""One middleware made ready to run; the forward and the backward pass through a list of them.

`forward` calls each step with the context. The result decides the kind of the step: None means
done; a generator is driven to its `yield` and kept as open; a coroutine is awaited. `back` resumes
the open steps, last first. `close` closes the open steps after an exception.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from types import AsyncGeneratorType, GeneratorType
from typing import TYPE_CHECKING, Any, Protocol

from muster.errors import RunCancelled, TaskError
from muster.framework.misuse import check_result

if TYPE_CHECKING:
    from muster.framework.context import Context
    from muster.framework.scope import Scope

Middleware = Callable[[Any], object]
"""Any callable of one argument, the context: a function, a generator function, an `async def`, an
object. The parameter may be annotated with `Context` or with a subclass that declares the keys."""


class Rest(ABC):
    """The part of a step that remains for the way back, if it is not a generator."""

    @abstractmethod
    def finish(self) -> None:
        """Run the remaining part."""

    @abstractmethod
    def close(self) -> None:
        """Discard the remaining part."""


class Step:
    """A middleware with its wrappers around it."""

    __slots__ = ("call", "name")

    def __init__(self, name: str, call: Middleware) -> None:
        self.name = name
        self.call = call


_GENERATORS = (GeneratorType, Generator)
"""Python's own type, which is found at once, and other types that behave like it (Cython's)."""

Open = list[tuple[Step, Rest | Generator[Any, Any, Any] | AsyncGeneratorType[Any, Any]]]
"""The steps with a part left to run on the way back, in order of use."""


class Program(Protocol):
    """Several steps, and how they run forward: one after the other, or overlapping."""

    def forward(self, ctx: Context, opened: Open, scope: Scope) -> None:
        """Call every step, and add those suspended at their `yield` to `opened`."""


class InTurn:
    """Steps that run one after the other."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = steps

    def forward(self, ctx: Context, opened: Open, scope: Scope) -> None:
        """Call every step in order of use."""
        forward(self._steps, ctx, opened, scope)


def forward(steps: Iterable[Step], ctx: Context, opened: Open, scope: Scope) -> None:
    """Call each step, and add those suspended at their `yield` to `opened`."""
    step = None
    try:
        for step in steps:
            if scope.failure is not None:
                raise _told_to_stop(step)
            result = step.call(ctx)
            if result is not None:
                _start(step, result, opened, scope)
    except BaseException as error:
        _note_where(error, step, ctx, scope)
        raise


def back(opened: Open, ctx: Context, scope: Scope) -> None:
    """Run the open steps to their end, last first. Steps not reached stay in `opened`."""
    step = None
    try:
        while opened:
            step, rest = opened.pop()
            if isinstance(rest, _GENERATORS):
                for _ in rest:
                    raise _yielded_twice(step, rest.close)
            elif isinstance(rest, Rest):
                rest.finish()
            elif scope.coroutines.run(anext(rest, _ENDED)) is not _ENDED:
                close_rest = functools.partial(scope.coroutines.run, rest.aclose())
                raise _yielded_twice(step, close_rest)
    except BaseException as error:
        _note_where(error, step, ctx, scope)
        raise


def close(opened: Open, error: BaseException | None, scope: Scope) -> BaseException | None:
    """Close the open steps, last first, so that every `finally` runs.

    Args:
        opened: The open steps; empty afterwards.
        error: The exception that caused this; later exceptions are added to it as notes.
        scope: The resources of the run.

    Returns:
        The first exception raised while closing.

    Raises:
        BaseException: A signal or sys.exit() arrived meanwhile; everything was closed first.
    """
    trouble: BaseException | None = None
    exit_request: BaseException | None = None
    while opened:
        step, rest = opened.pop()
        try:
            if isinstance(rest, AsyncGeneratorType):
                scope.coroutines.run(rest.aclose(), even_if_cancelled=True)
            else:
                rest.close()
        except Exception as another:
            trouble = trouble or another
            if error is not None:
                error.add_note(f"closing {step.name!r} failed too: {another!r}")
        except BaseException as another:
            exit_request = another
    if exit_request is not None:
        raise exit_request from error
    return trouble


def _start(step: Step, result: object, opened: Open, scope: Scope) -> None:
    """Run the first half of the object that a step returned; keep it if a second half is left."""
    if isinstance(result, _GENERATORS):
        opened.append((step, result))  # first, so that it is closed if a signal arrives now
        for _ in result:
            return
        opened.pop()
    elif isinstance(result, Rest):
        opened.append((step, result))
    elif isinstance(result, AsyncGeneratorType):
        opened.append((step, result))
        if scope.coroutines.run(anext(result, _ENDED)) is _ENDED:
            opened.pop()
    elif isinstance(result, Awaitable):
        check_result(step.name, scope.coroutines.run(result))
    else:
        check_result(step.name, result)


_ENDED = object()


def _told_to_stop(step: Step) -> RunCancelled:
    return RunCancelled(
        f"{step.name!r} was not started", "another middleware failed", "let the exception pass"
    )


def _yielded_twice(step: Step, close: Callable[[], object]) -> TaskError:
    error = TaskError(
        f"{step.name!r} yielded twice in one loop",
        "the one yield of a middleware separates the way forward from the way back",
        f"use two middleware, or task.serial(...), in place of the second yield in {step.name!r}",
    )
    try:
        close()
    except Exception as another:
        error.add_note(f"closing {step.name!r} failed too: {another!r}")
    return error


def _note_where(error: BaseException, step: Step | None, ctx: Context, scope: Scope) -> None:
    if step is not None:
        error.add_note(
            f"in middleware {step.name!r}, loop {ctx['total_step']}, node {scope.node_id}"
        )
