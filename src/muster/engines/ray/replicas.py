"""Replication of the shared memory: one replica on every machine, written by the node actors there.

    node publishes -> its actor -> one actor on every other machine writes its replica -> counter

A publication goes over a socket (`memory_link`), or by a Ray call if there is none. Node actors on
one machine share a replica, so it exists as long as any of them is alive.
"""

import logging
import os
import queue
import struct
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ray

from muster.engines.base import LIVED, ROW
from muster.engines.futex import Word
from muster.engines.local.handshake import Secrets
from muster.engines.memory import SharedMemory
from muster.engines.orders import Publish
from muster.engines.ray.calls import call_until_answered, start_call
from muster.engines.ray.memory_link import MemoryLink, Part
from muster.errors import ClusterError

Publication = tuple[Sequence[Part], int, int]
"""A publication of a node: the parts, the node, and its counter."""

_COUNTER = struct.Struct("<q")
EXIT_REPLICATION_FAILED = 71
"""Exit code of a node actor that can no longer replicate: it must not look alive."""

_CONNECT_AGAIN_SECONDS = 10.0
_MOST_SECONDS = 3600.0
"""Maximum seconds between two attempts to connect: behind a firewall each takes seconds."""
_log = logging.getLogger("muster")


@dataclass(frozen=True)
class OtherMachine:
    """Another machine of the run."""

    node_actors: Sequence[Any]
    """The node actors on it."""
    node: int
    """The node of the first of them."""
    host: str
    port: int
    """The port on which that actor listens for publications; 0 if it does not listen."""


class MemoryReplica:
    """This machine's replica of the shared memory.

    Args:
        memory: The shared memory of this machine.
    """

    def __init__(self, memory: SharedMemory) -> None:
        self._lock = threading.Lock()
        self._waiting: list[Publication] | None = None
        self._last: dict[int, Publication] = {}
        self.use(memory)

    def use(self, memory: SharedMemory) -> None:
        """Use this memory."""
        self._memory = memory
        self._view = memory.view(ROW)

    @property
    def nbytes(self) -> int:
        """Its size so far: the maximum that a node has asked for."""
        return os.fstat(self._memory.fileno()).st_size

    def read(self, spans: Sequence[tuple[int, int]]) -> list[Part]:
        """Read these spans."""
        view = self._reaching(max((stop for _, stop in spans), default=0))
        return [(start, bytes(view[start:stop])) for start, stop in spans]

    def write(self, parts: Sequence[Part], node: int, count: int) -> None:
        """Write a node's publication, then its counter, and wake the nodes that wait for it."""
        with self._lock:
            if self._waiting is not None:
                self._waiting.append((parts, node, count))
            else:
                self._write(parts, node, count)

    def count(self, node: int) -> int:
        """Return the counter of a node's publications on this machine."""
        number: int = _COUNTER.unpack_from(self._reaching((node + 1) * ROW), node * ROW)[0]
        return number

    def expect(self) -> None:
        """Buffer publications until `fill` is called: this machine is new."""
        with self._lock:
            if self._waiting is None:
                self._waiting = []

    def last_of(self, node: int) -> Publication | None:
        """Return the last publication of a node on another machine.

        That node's actor may have died before all machines had it: then they receive it from here.
        """
        with self._lock:
            return self._last.get(node)

    def fill(self, image: bytes, nodes: int) -> None:
        """Copy another machine's replica; no node has run on this machine yet.

        Args:
            image: All bytes of the other replica.
            nodes: Number of nodes of the run.
        """
        with self._lock:
            if self._waiting is None:  # already filled, and changed since
                return
            self._reaching(len(image))[: len(image)] = image
            for node in range(nodes):
                _COUNTER.pack_into(self._view, node * ROW + LIVED, 0)
            waiting, self._waiting = self._waiting, None
            for each in waiting:
                self._write(*each)

    def _write(self, parts: Sequence[Part], node: int, count: int) -> None:
        if parts:
            if count <= self.count(node):  # it was sent in two ways, and this copy was slower
                return
            self._last[node] = (parts, node, count)
        ends = [start + len(data) for start, data in parts]
        view = self._reaching(max([(node + 1) * ROW, *ends]))
        for start, data in parts:
            view[start : start + len(data)] = data
        if count > _COUNTER.unpack_from(view, node * ROW)[0]:
            _COUNTER.pack_into(view, node * ROW, count)
            Word(view, node * ROW).wake()

    def _reaching(self, size: int) -> memoryview:
        view = self._view  # another thread may replace it by a larger one meanwhile
        if len(view) < size:
            view = self._view = self._memory.view(max(size, self.nbytes))
        return view


class Replicator:
    """Writes one node's publications to the replicas of all other machines.

    Args:
        node: Id of the node.
        copy: This machine's replica.
        known: The run's secrets.
        fail: Called with an error that has to end the run.
    """

    def __init__(
        self,
        node: int,
        copy: MemoryReplica,
        known: Secrets,
        fail: Callable[[ClusterError], None],
    ) -> None:
        self._node = node
        self._known = known
        self._fail = fail
        self._replica = copy
        self._others: list[_Route] = []
        self._one_at_a_time = threading.Lock()
        self._todo: queue.SimpleQueue[Publish] = queue.SimpleQueue()
        self._undone = 0
        self._idle = threading.Condition()
        threading.Thread(target=self._serve, name="muster-replicate", daemon=True).start()

    def publish(self, what: Publish) -> None:
        """Queue a publication."""
        with self._idle:
            self._undone += 1
        self._todo.put(what)

    def drain(self) -> None:
        """Wait until the queue is empty: a new incarnation must find its final counter."""
        with self._idle:
            self._idle.wait_for(lambda: self._undone == 0)

    def set_machines(self, machines: Sequence[OtherMachine]) -> None:
        """Set the other machines.

        Returns when no publication is in flight to the previous machines: all later ones go to the
        new machines.
        """
        with self._one_at_a_time:
            for route in self._others:
                route.close()
            self._others = [_Route(self._node, machine, self._known) for machine in machines]

    def _serve(self) -> None:
        try:
            while True:
                self._do(self._todo.get())
        except ClusterError as error:  # the driver ends this node actor too
            self._fail(error)
        except BaseException:
            traceback.print_exc()
            os._exit(EXIT_REPLICATION_FAILED)

    def _do(self, what: Publish) -> None:
        with self._one_at_a_time:
            parts = self._replica.read(what.spans)
            for route in self._others:
                route.begin((parts, self._node, what.count))
            for route in list(self._others):
                if not route.finish():
                    self._others.remove(route)  # the registry announces the replacement
            self._replica.write((), self._node, what.count)
        with self._idle:
            self._undone -= 1
            self._idle.notify_all()


class _Route:
    """The route of one node's publications to one machine: a socket, or else Ray calls.

    Args:
        node: Id of the node.
        machine: The destination.
        known: The run's secrets.
    """

    def __init__(self, node: int, machine: OtherMachine, known: Secrets) -> None:
        self._node = node
        self._machine = machine
        self._known = known
        self._node_actors = list(machine.node_actors)
        self._link: MemoryLink | None = None
        self._connect_from = 0.0 if machine.port else float("inf")
        self._wait = _CONNECT_AGAIN_SECONDS
        self._what: Publication = ((), node, 0)
        self._begun: Any = None
        """The Ray call that carries the publication; None if the socket does."""

    def begin(self, what: Publication) -> None:
        """Send a publication, without waiting for the answer."""
        self._what, self._begun = what, None
        link = self._connected()
        if link is not None:
            try:
                link.send(*what)
                return
            except OSError as error:
                self._give_up_link(error)
        if self._node_actors:
            self._begun = start_call(self._ask)

    def finish(self) -> bool:
        """Wait until the machine has the publication; False if none of its node actors is alive.

        A machine must not miss a publication and receive the next: a node actor that is temporarily
        unreachable is asked again; one that refuses is killed, and its replacement is filled anew.
        """
        if self._link is not None:
            try:
                self._link.wait(self._what[2])
                self._wait = _CONNECT_AGAIN_SECONDS
                return True
            except OSError as error:
                self._give_up_link(error)
        while self._node_actors:
            try:
                call_until_answered(self._ask, begun=self._begun)
                return True
            except ray.exceptions.RayError as error:
                if not isinstance(error, ray.exceptions.ActorDiedError):
                    _log.warning("a node actor does not accept a publication: %s", error)
                    ray.kill(self._node_actors[0], no_restart=True)
                self._node_actors.pop(0)
                self._begun = None
        return False

    def close(self) -> None:
        """Close the socket, if there is one."""
        if self._link is not None:
            self._link.close()
            self._link = None

    def _connected(self) -> MemoryLink | None:
        """Return the link; if there is none, connect, but not too soon after a failure."""
        if self._link is None and time.monotonic() >= self._connect_from:
            there = self._machine
            try:
                self._link = MemoryLink(there.host, there.port, self._node, there.node, self._known)
            except OSError as error:
                self._give_up_link(error)
        return self._link

    def _give_up_link(self, error: OSError) -> None:
        self.close()
        self._connect_from = time.monotonic() + self._wait
        self._wait = min(4 * self._wait, _MOST_SECONDS)
        _log.warning(
            "the socket to %s:%d fails (%s): publications use Ray calls, which are slower",
            self._machine.host,
            self._machine.port,
            error,
        )

    def _ask(self) -> Any:
        return self._node_actors[0].copy.remote(*self._what)
