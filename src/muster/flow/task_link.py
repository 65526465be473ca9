"""`NodeTaskLink`: one task's connection to its counterparts on the other nodes."""

import logging
import queue
import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from muster.engines.base import Transport
from muster.errors import MusterWarning, OptionError
from muster.flow.board import Publisher, Subscriber
from muster.flow.dispatcher import Dispatcher
from muster.flow.parallel_ctx import ParallelContext
from muster.flow.stream import Inlet, Item, Outlet
from muster.flow.wire import CannotTravelError, Packed, pack
from muster.framework.events import Events, Payload
from muster.framework.labels import Labels
from muster.framework.node import Finish, Use

GRACE = 10.0
"""Seconds that other nodes have for acknowledging events and `finish`."""

_EVENTS_UNDER_WAY = 1024

_log = logging.getLogger("muster")


class NodeTaskLink:
    """Implements `muster.framework.node.TaskLink`.

    Args:
        dispatcher: The node's dispatcher.
        transport: The node's transport.
        number: The number of this task on its node.
        events: The task's events.
        finish: Called once, on the link thread, when another node or the parent ends the run.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        transport: Transport,
        number: int,
        events: Events,
        finish: Callable[[Finish], None],
    ) -> None:
        place = dispatcher.place
        self._dispatcher = dispatcher
        self._transport = transport
        self._number = number
        self._events = events
        self._tell_task = finish
        self._finish: Finish | None = None
        self._ending = threading.Condition()
        self.received = ParallelContext(dispatcher, lambda: self._finish is not None)
        self._stays_here: set[tuple[str, type]] = set()
        self._publisher = Publisher(dispatcher, f"ctx.{number}", place.peers)
        self._subscriber = Subscriber(dispatcher, f"ctx.{number}", self.received.receive)
        self._met = threading.Event()
        self._arrived: queue.SimpleQueue[Item | None] = queue.SimpleQueue()
        self._deliverer = threading.Thread(target=self._deliver, name="muster-events", daemon=True)
        self._deliverer.start()
        self._events_in = Inlet(dispatcher, f"event.{number}", self._arrived.put)
        self._finish_in = Inlet(dispatcher, f"finish.{number}", self._finish_arrived)
        self._events_out = [
            Outlet(dispatcher, f"event.{number}", node, _EVENTS_UNDER_WAY) for node in place.linked
        ]
        self._finish_out = [
            Outlet(dispatcher, f"finish.{number}", node, 1) for node in place.linked
        ]

    # ---- for the task

    def meet(self, uses: Sequence[Use], labels: Labels) -> None:
        """Wait until every node is about to run; OptionError if no node would run a middleware."""
        problem = self._transport.meet(self._number, uses, labels)
        if problem is not None:
            what, why = problem.split("\n")
            raise OptionError(
                what, why, 'filter_labels=["role.<name>"], with a label that a node has'
            )
        self._met.set()
        self._transport.looping(True)

    def share(self, values: Mapping[str, Any]) -> None:
        """Send a loop's values to the neighbours; warn once of values that cannot travel."""
        self._transport.advance()
        if not self._dispatcher.place.peers:
            return
        if self._stays_here:
            values = {k: v for k, v in values.items() if (k, type(v)) not in self._stays_here}
        try:
            packed: Packed | None = pack(dict(values), "ctx")
        except CannotTravelError:
            values = {k: v for k, v in values.items() if self._can_travel(k, v)}
            packed = pack(values, "ctx") if values else None
        if packed is not None and values:
            self._publisher.publish(set(values), packed)

    def emit(self, name: str, payload: Payload) -> None:
        """Send an event to every other node."""
        if not self._events_out:
            return
        args, kwargs = payload
        packed = pack([name, list(args), kwargs], "event")
        # A listener that emits must not wait for nodes whose listeners may wait for this node.
        may_wait = threading.current_thread() is not self._deliverer
        for outlet in self._events_out:
            outlet.put(packed, wait=may_wait)

    def wait_for_finish(self) -> None:
        """Wait until another node ends the run, or all others have left it."""
        self._dispatcher.wait_for(
            self._ending, lambda: self._finish is not None or self._dispatcher.is_alone, None
        )

    def waiting(self) -> AbstractContextManager[None]:
        """Within this block the task waits for other nodes."""
        return self._transport.waiting()

    def finish(self) -> None:
        """Tell every other node to finish, and wait until each has acknowledged it."""
        me = self._dispatcher.place.name
        was_told = self._finish is not None and not self._finish.is_first
        if not was_told and self._finish_out:
            self._transport.finishing(me)
            packed = pack(me)
            for outlet in self._finish_out:
                outlet.put(packed, wait=False)
            self._wait_until_heard(self._finish_out, "finish")

    def close(self) -> None:
        """Deliver the received events, and wait until the sent events have arrived."""
        self._transport.looping(False)
        self._met.set()
        for outlet in self._events_out:
            if not outlet.is_empty:
                outlet.put(pack(None), wait=False, ask=True)
        self._wait_until_heard(self._events_out, "an event")
        self._events_in.close()
        self._arrived.put(None)
        if threading.current_thread() is not self._deliverer:
            self._deliverer.join(GRACE)
        self._subscriber.close()

    # ---- from outside

    def told_to_finish(self, finish: Finish) -> None:
        """End the task, because another node or the parent asked for it."""
        if self._finish is not None:
            return
        self._finish = finish
        with self._ending:
            self._ending.notify_all()
        self._tell_task(finish)
        self.received.wake()

    def _finish_arrived(self, item: Item) -> None:
        by = item.value()
        self._finish_in.acknowledge(item)
        self.told_to_finish(Finish(str(by)))

    def _deliver(self) -> None:
        self._met.wait()  # listeners are registered before run, possibly after the task is made
        while (item := self._arrived.get()) is not None:
            try:
                event = item.value()
                if event is not None:  # None only asks how far this node is
                    name, args, kwargs = event
                    self._events.emit(name, (tuple(args), kwargs))
            except Exception:
                _log.exception("an event of node %d could not be delivered", item.sender)
            self._events_in.acknowledge(item)

    def _wait_until_heard(self, outlets: Sequence[Outlet], what: str) -> None:
        deadline = time.monotonic() + GRACE
        for outlet in outlets:
            if not outlet.wait_until_empty(deadline):
                _log.warning("node %d did not acknowledge %s", outlet.name[1], what)

    def _can_travel(self, key: str, value: Any) -> bool:
        try:
            pack(value, f"ctx[{key!r}]")
        except CannotTravelError as error:
            self._stays_here.add((key, type(value)))
            warnings.warn(f"ctx.{key} stays on this node: {error.args[0]}", MusterWarning, 2)
            return False
        return True
