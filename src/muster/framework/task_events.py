"""`TaskEvents`: how a task handles events, on this node and between nodes."""

from typing import Any, Self

from muster.errors import OptionError, TaskError
from muster.framework.events import Events, Listener, Payload
from muster.framework.node import TaskLink
from muster.framework.scope import Scope


class TaskEvents:
    """The methods of `Task` that concern events."""

    _events: Events
    _link: TaskLink | None
    """The connection to the same task on other nodes."""
    _scope: Scope | None
    """The resources of the current run."""

    def emit(
        self,
        name: str,
        /,
        *args: Any,
        only_local: bool = False,
        only_remote: bool = False,
        **kwargs: Any,
    ) -> None:
        """Send an event to every node, including this one.

        Args:
            name: Name of the event.
            args: Passed to the listeners.
            only_local: Deliver on this node only.
            only_remote: Deliver on the other nodes only.
            kwargs: Passed to the listeners.
        """
        if only_local and only_remote:
            raise OptionError(
                "emit() got only_local and only_remote",
                "together they leave no receiver",
                f"task.emit({name!r}, ..., only_local=True)",
            )
        if name == "exit":
            raise OptionError(
                "emit('exit') is not possible",
                "the task emits it itself, once, when run ends",
                "ctx.finish = True, to make this loop the last",
            )
        if self._link is not None and not only_local:
            self._link.emit(name, (args, kwargs))
        if not only_remote:
            self._events.emit(name, (args, kwargs))

    def on(self, name: str, fn: Listener) -> Self:
        """Call `fn` with the arguments of every event of this name, on the thread that delivers it.

        The event `exit` comes once, without arguments, when `run` ends, for whatever reason.
        """
        self._events.on(name, fn)
        return self

    def once(self, name: str, fn: Listener) -> Self:
        """Call `fn` for the next event of this name only."""
        self._events.on(name, fn, once=True)
        return self

    def off(self, name: str, fn: Listener | None = None) -> Self:
        """Stop calling `fn`, or every listener, for events of this name."""
        self._events.off(name, fn)
        return self

    def wait_for(self, name: str, timeout: float | None = None) -> Payload:
        """Block until the next event of this name; return its `(args, kwargs)`.

        Raises:
            TimeoutError: No event came within `timeout` seconds.
            RunCancelled: No event will come, because the run is over or is being stopped.
        """
        if self._scope is not None and self._scope.coroutines.is_this_thread():
            raise TaskError(
                f"wait_for({name!r}) was called on the event loop",
                "the call blocks, and every other async def of this task would stop",
                f"await asyncio.to_thread(task.wait_for, {name!r})",
            )
        if self._link is None:
            return self._events.wait_for(name, timeout)
        with self._link.waiting():
            return self._events.wait_for(name, timeout)
