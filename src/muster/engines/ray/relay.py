"""`Relay`: one incarnation of a node, as the driver sees it through the node's actor.

    node actor ──updates──> thread of the relay ──> pipe, logs, progress page ──> supervisor

The thread polls the node actor for updates and writes them to the pipes that the supervisor reads,
as a node on this machine would. If Ray never answers, the thread is abandoned, and the node counts
as ended.
"""

import os
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.connection import Pipe
from typing import Any

import ray

from muster.engines.progress import ProgressPage
from muster.engines.ray.actor_registry import ActorRegistry
from muster.engines.ray.calls import call_until_answered, first_line
from muster.engines.ray.node_actor import NodeLocation, Order
from muster.engines.ray.process import PortableProgram, ProcessSetup
from muster.engines.ray.process_monitor import (
    EndUpdate,
    FailureUpdate,
    MessageUpdate,
    NodeUpdate,
    OutputUpdate,
    ProgressUpdate,
)
from muster.engines.ray.side_effects import note_stuck_thread
from muster.errors import ClusterError, MusterError
from muster.framework.node import Place

_TELL_AGAIN_SECONDS = 1.0


class Relay:
    """Starts the node on construction, and reports what happens to it.

    Args:
        place: The node's place.
        program: The program of the node.
        threads: Threads of numeric libraries; None for the number that its resources allow.
        pin: Whether it is bound to its own cores.
        page: Where its progress is recorded.
        actor_registry: The node actors.
        ask_every: Seconds that the node actor may wait for updates.
        lose: Called with the error that ends the whole run, if the cluster fails it.
    """

    def __init__(
        self,
        place: Place,
        program: PortableProgram,
        threads: int | None,
        pin: bool,
        page: ProgressPage,
        actor_registry: ActorRegistry,
        ask_every: float,
        lose: Callable[[ClusterError], None],
    ) -> None:
        self._place = place
        self._program = program
        self._threads = threads
        self._pin = pin
        self._page = page
        self._registry = actor_registry
        self._ask_every = ask_every
        self._lose = lose
        self.pipe, self._say = Pipe(duplex=False)
        self.sentinel, self._end = os.pipe()
        (self.out, out), (self.err, err) = os.pipe(), os.pipe()
        self._logs = out, err
        self.node_actor: Any = None
        """The actor of the node; None before it runs."""
        self.status = ""
        """How the node ended."""
        self.unwanted = False
        """Whether the node need not start any more."""
        self._orders: list[Order] = []
        """Orders that are not acknowledged yet."""
        self._told = 0
        self._told_at = 0.0
        self._orders_lock = threading.Lock()
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._given_up = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name=f"muster-updates-{place.node_id}", daemon=True
        )
        self._thread.start()

    def wait(self, seconds: float) -> bool:
        """Wait this many seconds for the node to end; return whether it has, or counts as ended."""
        return self._over.wait(seconds)

    def tell(self, order: object, locations: Sequence[NodeLocation]) -> None:
        """Send an order to the node, after all earlier ones, without waiting."""
        with self._orders_lock:
            self._told += 1
            self._orders.append(Order(self._told, order, locations))
            self._told_at = time.monotonic()
            self.node_actor.tell.remote(list(self._orders), self._place.incarnation)

    def _tell_again(self, heard_of: int) -> None:
        """Send orders again that were not acknowledged: their call was lost."""
        with self._orders_lock:
            self._orders = [each for each in self._orders if each.number > heard_of]
            if self._orders and time.monotonic() - self._told_at > _TELL_AGAIN_SECONDS:
                self._told_at = time.monotonic()
                self.node_actor.tell.remote(list(self._orders), self._place.incarnation)

    def give_up(self, why: str) -> None:
        """Count the node as ended, whatever the thread waits for."""
        with self._lock:
            if not self._over.is_set():
                self._given_up.set()
                note_stuck_thread(self._thread.name)
                self._registry.lose(self._place.node_id)
                self._ended(why)
                os.write(self._end, b"x")
                self._over.set()

    # ---- on the thread

    def _run(self) -> None:
        node = self._place.node_id
        try:
            self.node_actor = self._registry.actor_of(node)
            if self.unwanted:
                self._ended("it was ended before it started")
                return
            told = ProcessSetup(
                self._place,
                self._program,
                self._threads or self._registry.threads_of(node),
                self._registry.is_spread,
                self._registry.position(node) if self._pin else None,
            )
            call_until_answered(
                partial(self.node_actor.start.remote, told, self._registry.memory_lost)
            )
            number = 0
            while not self.status and not self._given_up.is_set():
                answer = call_until_answered(
                    partial(self.node_actor.updates.remote, number, self._ask_every)
                )
                updates = answer.updates if answer.number > number else ()
                number = answer.number
                self._tell_again(answer.orders_heard)
                for each in updates:
                    if self._given_up.is_set():
                        return
                    self._apply(each)
        except ray.exceptions.RayError as error:
            self._registry.lose(node)
            self._ended(f"its Ray actor is gone: {first_line(error)}")
        except MusterError as error:
            if isinstance(error, ClusterError):
                self._lose(error)
            self._registry.lose(node)
            self._ended(f"{error.args[0]}: {error.args[1]}")
        except BaseException as error:
            if self._given_up.is_set():  # no one listens any more
                return
            self._registry.lose(node)
            self._ended(f"it could not be watched: {error!r}")
            raise
        finally:
            with self._lock:
                self._say.close()
                for fd in (*self._logs, self._end):
                    os.close(fd)
                self._over.set()

    def _ended(self, status: str) -> None:
        self.status = self.status or status

    def _apply(self, updates: NodeUpdate) -> None:
        if isinstance(updates, MessageUpdate):
            self._say.send(updates.order)
        elif isinstance(updates, OutputUpdate):
            _write_all(self._logs[updates.is_error], updates.data)
        elif isinstance(updates, ProgressUpdate):
            self._page.write(self._place.node_id, updates.row)
        elif isinstance(updates, EndUpdate):
            self._ended(updates.status)
        elif isinstance(updates, FailureUpdate):
            self._lose(ClusterError(updates.what, updates.why, updates.fix))


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
