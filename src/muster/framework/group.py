"""Several middleware combined into one: the objects that `task.serial` and `parallel` return."""

from collections.abc import Callable, Iterator

from muster.framework.context import Context
from muster.framework.scope import Scope
from muster.framework.step import Middleware, Open, Program, Rest, back, close


class GroupRest(Rest):
    """The part of a group that remains for the way back."""

    def __init__(self, opened: Open, ctx: Context, scope: Scope) -> None:
        self._opened = opened
        self._ctx = ctx
        self._scope = scope

    def finish(self) -> None:
        """Run the open members to their end, last first."""
        try:
            back(self._opened, self._ctx, self._scope)
        except BaseException as error:
            close(self._opened, error, self._scope)
            raise

    def close(self) -> None:
        """Close the open members, last first; raise the first exception, so that it is noted."""
        trouble = close(self._opened, None, self._scope)
        if trouble is not None:
            raise trouble

    def __iter__(self) -> Iterator[None]:
        """Let a middleware that calls a group use `yield from group(ctx)`."""
        try:
            yield
        except BaseException as error:
            close(self._opened, error, self._scope)
            raise
        self.finish()


class Group:
    """Several middleware behind one call, which runs all forward and returns the rest.

    Args:
        name: The name of the group in messages, such as `serial(a, b)`.
        members: The middleware.
        build: Makes the program of the members. It is called once, when the first loop reaches the
            group, so that wrappers registered later also wrap its members.
        scope: Returns the resources of the current run.
    """

    def __init__(
        self,
        name: str,
        members: tuple[Middleware, ...],
        build: Callable[[tuple[Middleware, ...]], Program],
        scope: Callable[[], Scope],
    ) -> None:
        self.__name__ = name
        self._members = members
        self._build = build
        self._scope = scope
        self._program: Program | None = None

    def __call__(self, ctx: Context) -> GroupRest:
        """Run the members forward."""
        scope = self._scope()
        if self._program is None:
            self._program = self._build(self._members)
        opened: Open = []
        try:
            self._program.forward(ctx, opened, scope)
        except BaseException as error:
            close(opened, error, scope)
            raise
        return GroupRest(opened, ctx, scope)
