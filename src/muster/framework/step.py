"""One middleware made ready to run, and the two ways through a list of them.

`forward` calls each step with the context. What comes back tells what the step is: None, and it is
done; a generator, and it is driven to its `yield` and remembered as open; a coroutine, and it is
awaited. `back` resumes what is open, last first. `close` is for when something went wrong in
between.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from types import AsyncGeneratorType, GeneratorType
from typing import TYPE_CHECKING, Any, Protocol

from muster.errors import TaskError
from muster.framework.misuse import check_result

if TYPE_CHECKING:
    from muster.framework.context import Context
    from muster.framework.scope import Scope

Middleware = Callable[[Any], object]
"""Any callable of one argument, the context: a function, a generator function, an `async def`, an
object. The parameter may be annotated with `Context` or with a subclass that declares the keys it
uses."""

Rest = Generator[Any, Any, Any] | AsyncGeneratorType[Any, Any]


class Step:
    """A middleware with its wrappers around it."""

    __slots__ = ("call", "name")

    def __init__(self, name: str, call: Middleware) -> None:
        self.name = name
        self.call = call


Open = list[tuple[Step, Rest]]
"""The steps that stopped at their `yield`, in order of use."""


class Program(Protocol):
    """Several steps, and the way in which they go forward: in turn, or overlapping."""

    def forward(self, ctx: Context, opened: Open, scope: Scope) -> None:
        """Call every step, and add those that stopped at their `yield` to `opened`."""


class InTurn:
    """Steps that run one after the other."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = steps

    def forward(self, ctx: Context, opened: Open, scope: Scope) -> None:
        """Call every step in order of use."""
        forward(self._steps, ctx, opened, scope)


def forward(steps: Iterable[Step], ctx: Context, opened: Open, scope: Scope) -> None:
    """Call each step, and add those that stopped at their `yield` to `opened`."""
    step = None
    try:
        for step in steps:
            result = step.call(ctx)
            if result is not None:
                rest = _start(step, result, scope)
                if rest is not None:
                    opened.append((step, rest))
    except BaseException as error:
        _note_where(error, step, ctx, scope)
        raise


def back(opened: Open, ctx: Context, scope: Scope) -> None:
    """Run the open steps to their end, last first. Those not reached stay in `opened`."""
    step = None
    try:
        while opened:
            step, rest = opened.pop()
            if isinstance(rest, AsyncGeneratorType):
                if scope.coroutines.run(anext(rest, _ENDED)) is not _ENDED:
                    scope.coroutines.run(rest.aclose())
                    raise _yielded_twice(step)
            else:
                for _ in rest:
                    rest.close()
                    raise _yielded_twice(step)
    except BaseException as error:
        _note_where(error, step, ctx, scope)
        raise


def close(opened: Open, error: BaseException, scope: Scope) -> None:
    """Close what is still open, last first, so that every `finally` runs; `error` is why."""
    while opened:
        step, rest = opened.pop()
        try:
            if isinstance(rest, AsyncGeneratorType):
                scope.coroutines.run(rest.aclose(), even_if_cancelled=True)
            else:
                rest.close()
        except BaseException as another:
            error.add_note(f"closing {step.name!r} failed too: {another!r}")


def _start(step: Step, result: object, scope: Scope) -> Rest | None:
    """Do the first half of what a step returned; return what is left for the way back."""
    if isinstance(result, (GeneratorType, Generator)):
        for _ in result:
            return result
    elif isinstance(result, AsyncGeneratorType):
        if scope.coroutines.run(anext(result, _ENDED)) is not _ENDED:
            return result
    elif isinstance(result, Awaitable):
        scope.coroutines.run(result)
    else:
        check_result(step.name, result)
    return None


_ENDED = object()


def _yielded_twice(step: Step) -> TaskError:
    return TaskError(
        f"{step.name!r} yielded twice in one loop",
        "the one yield of a middleware parts the way forward from the way back",
        f"use two middleware, or task.serial(...), in place of the second yield in {step.name!r}",
    )


def _note_where(error: BaseException, step: Step | None, ctx: Context, scope: Scope) -> None:
    if step is not None:
        error.add_note(
            f"in middleware {step.name!r}, loop {ctx['total_step']}, node {scope.node_id}"
        )
