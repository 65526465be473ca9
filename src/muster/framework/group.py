"""One middleware made of several: what `task.serial` and `task.parallel` return."""

from collections.abc import Callable, Generator

from muster.framework.context import Context
from muster.framework.scope import Scope
from muster.framework.step import Middleware, Open, Program, back, close


class Group:
    """Several middleware behind one call: forward through all, `yield`, back through all.

    Args:
        name: How the group is called in messages, such as `serial(a, b)`.
        members: What it is made of.
        build: Makes the program of the members; called once, when the first loop reaches the group,
        so
            that wrappers which were registered after the group was made are around its members too.
        scope: Tells what the current run owns.
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

    def __call__(self, ctx: Context) -> Generator[None, None, None]:
        """Run the members forward, and after the `yield` back."""
        if self._program is None:
            self._program = self._build(self._members)
        scope = self._scope()
        opened: Open = []
        try:
            self._program.forward(ctx, opened, scope)
            yield
            back(opened, ctx, scope)
        except BaseException as error:
            close(opened, error, scope)
            raise
