"""`Uses`: the middleware that a program uses, in order, and which of it runs on this node."""

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from muster.errors import MiddlewareError, OptionError
from muster.framework import misuse
from muster.framework.group import Group
from muster.framework.labels import Labels, matches, parse_filter, warn_of_typo
from muster.framework.names import BEING_WRAPPED, name_of
from muster.framework.node import Use
from muster.framework.overlap import Overlap
from muster.framework.step import InTurn, Middleware, Program, Step

StepWrapper = Callable[[Middleware], Middleware]
"""Takes a middleware and returns one, which has to return the inner one's result (`return
fn(ctx)`). A wrapper with a method `end_loop(ctx, seconds)` receives the duration of every loop; one
with a method `bind(task)` receives its task."""


@dataclass(frozen=True, slots=True)
class _Use:
    """One call of `Task.use`."""

    fn: Middleware
    filter_labels: tuple[str, ...] | None
    after: frozenset[int]
    """Indices of all earlier uses that this one comes after, directly or indirectly."""


class Uses:
    """The middleware that a task was given.

    Args:
        labels: The labels of this node.
        is_alone: Whether no other node exists that may run a middleware that does not run here.
    """

    def __init__(self, labels: Labels, is_alone: bool) -> None:
        self.wrappers: list[StepWrapper] = []
        """The first one is innermost."""
        self._labels = labels
        self._is_alone = is_alone
        self._uses: list[_Use] = []

    def __len__(self) -> int:
        """Return the number of uses, on this node and on others."""
        return len(self._uses)

    def add(
        self,
        fn: Middleware,
        filter_labels: Iterable[str] | None,
        after: Middleware | Sequence[Middleware] | None,
    ) -> None:
        """Add a middleware to the end of the loop; arguments as in `Task.use`."""
        misuse.check_middleware(fn)
        patterns = None if filter_labels is None else parse_filter(filter_labels)
        earlier: Sequence[Middleware] = ()
        if after is not None:
            earlier = [after] if callable(after) else after
        direct = {number for each in earlier for number in self._numbers_of(each, name_of(fn))}
        indirect = (self._uses[number].after for number in direct)
        self._uses.append(_Use(fn, patterns, frozenset(direct).union(*indirect)))

    def has_work(self) -> bool:
        """Whether any middleware runs on this node."""
        return any(self._runs_here(use) for use in self._uses)

    def as_others_see_them(self) -> list[Use]:
        """Return all uses by name, for the other nodes."""
        return [Use(name_of(each.fn), each.filter_labels) for each in self._uses]

    def program(self, overlaps: bool) -> Program:
        """Return the middleware that runs on this node, in sequence or overlapping."""
        active = [number for number, use in enumerate(self._uses) if self._runs_here(use)]
        steps = [self.step(self._uses[number].fn) for number in active]
        if not overlaps:
            return InTurn(steps)
        # Transitive, so that an order also holds through a middleware that does not run here.
        after = [
            [active.index(number) for number in self._uses[each].after if number in active]
            for each in active
        ]
        return Overlap(steps, after)

    def step(self, fn: Middleware) -> Step:
        """Return a middleware ready to run, inside the wrappers."""
        name = name_of(fn)
        if isinstance(fn, Group) or not self.wrappers:
            return Step(name, fn)
        token = BEING_WRAPPED.set(name)
        call = functools.reduce(_wrap, self.wrappers, fn)
        BEING_WRAPPED.reset(token)
        if misuse.returns_rest(fn):
            call = misuse.refuse_swallowed_rest(name, call)
        return Step(name, call)

    def _numbers_of(self, fn: Middleware, follower: str) -> list[int]:
        # Equal, not identical: obj.method is a new object each time it is looked up.
        numbers = [number for number, use in enumerate(self._uses) if use.fn == fn]
        if not numbers:
            raise OptionError(
                f"after={name_of(fn)} is not possible for {follower!r}",
                f"{name_of(fn)!r} was not used before it",
                f"task.use({name_of(fn)}), and pass the same object as after",
            )
        return numbers

    def _runs_here(self, use: _Use) -> bool:
        if use.filter_labels is None or matches(self._labels, use.filter_labels):
            return True
        if self._is_alone:  # otherwise it may be meant for another node
            warn_of_typo(name_of(use.fn), use.filter_labels, self._labels)
        return False


def _wrap(fn: Middleware, wrapper: StepWrapper) -> Middleware:
    wrapped = wrapper(fn)
    if not callable(wrapped):
        raise MiddlewareError(
            f"the step wrapper {name_of(wrapper)!r} returned {wrapped!r}",
            "a wrapper takes a middleware and returns one",
            f"end {name_of(wrapper)!r} with: return wrapped",
        )
    return wrapped
