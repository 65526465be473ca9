"""`NodeActor`: the Ray actor of one node. It holds the node's resources, and runs its process.

    driver ──start, tell, kill──> NodeActor ──pipe──> process of the node
    driver <───────updates─────── NodeActor <──links── proxies of nodes on other machines

The node is a separate process, as on one machine: the actor notices from outside when the process
is killed, stopped, or stuck in a call, and does not fail with it.
"""

import contextlib
import os
import select
import shutil
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ray

from muster.engines.local.handshake import Secrets
from muster.engines.local.listener import socket_path
from muster.engines.local.runtime_dir import runtime_directory
from muster.engines.memory import SharedMemory
from muster.engines.orders import Present
from muster.engines.progress import ProgressPage
from muster.engines.ray.memory_link import MemoryServer, Part
from muster.engines.ray.peer_proxy import PeerProxy, RemoteMessage
from muster.engines.ray.process import ProcessSetup
from muster.engines.ray.process_monitor import NodeUpdate, ProcessMonitor
from muster.engines.ray.replicas import (
    MemoryReplica,
    OtherMachine,
    Publication,
    Replicator,
)
from muster.engines.ray.versions import my_versions
from muster.engines.ray.watch import servers_here
from muster.errors import ClusterError
from muster.framework.node import Place

_util: Any = ray.util
_END_SECONDS = 30.0
_AFTER_RAYLET_SECONDS = 12.0


@dataclass(frozen=True)
class ActorLocation:
    """Where a node actor runs, and its versions."""

    machine: str
    """Ray's id of its machine."""
    address: str
    """The machine's IP address, for messages."""
    directory: Path
    """The directory of its node's socket."""
    pid: int
    memory: int
    """Descriptor, in that process, of the memory that nodes of the machine share."""
    versions: Mapping[str, str]


@dataclass(frozen=True)
class NodeLocation:
    """Where another node runs, for a node actor."""

    place: Place
    machine: str
    directory: Path
    node_actor: Any


@dataclass(frozen=True)
class Order:
    """An order to the node, and the locations of the nodes that it names."""

    number: int
    """One more than the number of the previous order, for the same incarnation."""
    order: object
    locations: Sequence[NodeLocation]


@dataclass(frozen=True)
class UpdateBatch:
    """The answer to a driver that polls for updates."""

    number: int
    updates: Sequence[NodeUpdate]
    orders_heard: int
    """The number of the last order that the node received."""


class NodeActor:
    """Runs one node.

    Every call may be made twice: if an answer is lost, the caller cannot know whether the call
    arrived.

    Args:
        place: The node's place at the start.
        known: The run's secrets.
    """

    def __init__(self, place: Place, known: Secrets) -> None:
        self._place = place
        self._known = known
        self._me = ray.get_runtime_context().current_actor
        self._machine = ray.get_runtime_context().get_node_id()
        self._directory_context = runtime_directory()
        self._directory = self._directory_context.__enter__()
        self._page = ProgressPage.create(place.size)
        self._memory = SharedMemory.create()
        self._proxies: dict[int, PeerProxy] = {}
        self._lock = threading.Lock()
        self._replica = MemoryReplica(self._memory)
        self._server: MemoryServer | None = None
        self._replicator = Replicator(place.node_id, self._replica, known, self._fail)
        self._monitor = ProcessMonitor(self._page, self._replicator.publish)
        self._begun = -1
        self._orders_heard = 0
        self._left = threading.Event()
        threading.Thread(target=self._end_with_raylet, name="muster-fate", daemon=True).start()

    # ---- before the node starts

    def location(self) -> ActorLocation:
        """Return where this actor runs."""
        return ActorLocation(
            self._machine,
            _util.get_node_ip_address(),
            self._directory,
            os.getpid(),
            self._memory.fileno(),
            my_versions(),
        )

    def join_memory(self, pid: int, fd: int) -> None:
        """Map the memory of another node actor on this machine, in place of its own."""
        elders = os.open(f"/proc/{pid}/fd/{fd}", os.O_RDWR | os.O_CLOEXEC)
        # Under the same number, because the driver already knows this descriptor.
        os.dup2(elders, self._memory.fileno(), inheritable=False)
        os.close(elders)
        self._replica.use(self._memory)

    def listen(self, is_asked: bool) -> int:
        """Listen for publications from other machines, and return the port; 0 if not listening.

        Earlier connections are closed: a lost node may have sent a publication that is still
        unread, and its replacement publishes under the same numbers.

        Args:
            is_asked: Whether this actor is the one that listens on its machine.
        """
        if self._server is not None:
            self._server.close()
            self._server = None
        if not is_asked or _has_tls():
            return 0
        host = _util.get_node_ip_address()
        self._server = MemoryServer(host, self._place.node_id, self._known, self._replica.write)
        return self._server.port

    def set_machines(self, machines: Sequence[OtherMachine]) -> None:
        """Set the other machines of this run."""
        self._replicator.set_machines(machines)

    def start(self, told: ProcessSetup, memory_lost: bool) -> None:
        """Start the node's process; repeated calls for one incarnation have no effect."""
        place = told.place
        if place.incarnation <= self._begun:
            return
        self._begun = place.incarnation
        self._orders_heard = 0
        self._replicator.drain()
        self._place = place
        self._page.reset(place.node_id)
        told = replace(told, known=self._known, directory=self._directory)
        memory = -1 if memory_lost else self._memory.fileno()
        self._monitor.start(told, self._page.fileno(), memory)

    # ---- while it lives

    @ray.method(concurrency_group="updates")
    def updates(self, heard: int, seconds: float) -> UpdateBatch:
        """Return updates about the node; waits at most `seconds` if there are none."""
        number, updates = self._monitor.updates(heard, seconds)
        return UpdateBatch(number, updates, self._orders_heard)

    @ray.method(concurrency_group="orders")
    def tell(self, orders: Sequence[Order], incarnation: int) -> None:
        """Pass orders to this incarnation of the node, each once, and in order.

        An order that names other nodes is passed on when these can be reached.
        """
        if incarnation != self._begun:
            return
        for each in orders:
            if each.number != self._orders_heard + 1:
                continue
            if isinstance(each.order, Present):
                for location in each.locations:
                    self._make_reachable(location)
            self._monitor.tell(each.order)
            self._orders_heard = each.number

    @ray.method(concurrency_group="kills")
    def kill(self, incarnation: int) -> None:
        """Kill the process of this incarnation of the node, and everything that it has started."""
        if incarnation == self._place.incarnation:
            self._monitor.kill()

    @ray.method(concurrency_group="orders")
    def leave(self) -> None:
        """End the node's process and clean up; the driver kills the actor next."""
        self._left.set()
        self._monitor.kill()
        with self._lock:
            proxies, self._proxies = list(self._proxies.values()), {}
        for each in proxies:
            each.close()
        self._directory_context.__exit__(None, None, None)
        # In case the driver has lost the head, which would have to end this actor.
        end = threading.Timer(_END_SECONDS, os._exit, (0,))
        end.daemon = True
        end.start()

    def _fail(self, error: ClusterError) -> None:
        self._monitor.fail(error)

    def _end_with_raylet(self) -> None:
        """End with the raylet that started this process: Ray's workers outlive a killed raylet.

        The nodes of a run that ends for this reason have some time to save their state. This time
        is shorter than the head takes to notice, so an actor that replaces this one finds it gone.
        """
        raylet = servers_here(ray, is_own=False).get("raylet")
        if raylet is None:
            return
        with contextlib.suppress(ProcessLookupError):
            select.select([os.pidfd_open(raylet)], [], [])
        self._left.wait(_AFTER_RAYLET_SECONDS)
        self._monitor.kill()
        shutil.rmtree(self._directory, ignore_errors=True)
        os._exit(1)

    # ---- called by other node actors: links

    @ray.method(concurrency_group="messages")
    def link(self, node_actor: Any, place: Place, incarnation: int, session: int) -> None:
        """Link a node of another machine to this node, if it is still that incarnation."""
        here = self._proxies.get(place.node_id)
        is_done = here is not None and here.session == session  # the answer was lost
        if incarnation == self._place.incarnation and not is_done:
            self._proxy_for(place, node_actor, session).connect(incarnation)

    @ray.method(concurrency_group="messages")
    def deliver(self, sender: int, number: int, messages: Sequence[RemoteMessage]) -> None:
        """Pass on messages from a node of another machine."""
        peer_proxy = self._proxies.get(sender)
        if peer_proxy is not None:
            peer_proxy.deliver(number, messages)

    @ray.method(concurrency_group="messages")
    def unlink(self, node: int) -> None:
        """Disconnect the node from one on another machine."""
        with self._lock:
            peer_proxy = self._proxies.pop(node, None)
        if peer_proxy is not None:
            peer_proxy.close()

    def _make_reachable(self, location: NodeLocation) -> None:
        """Make another node reachable at a socket next to this node's own."""
        if location.machine == self._machine:
            there = socket_path(location.directory, location.place.node_id)
            here = socket_path(self._directory, location.place.node_id)
            here.unlink(missing_ok=True)
            here.symlink_to(there)
        else:
            self._proxy_for(location.place, location.node_actor)

    def _proxy_for(self, place: Place, node_actor: Any, session: int | None = None) -> PeerProxy:
        node = place.node_id
        with self._lock:
            older = self._proxies.pop(node, None)
        if older is not None:
            older.close()
        peer_proxy = PeerProxy(
            place,
            self._place,
            self._known,
            self._directory,
            node_actor,
            self._me,
            self._fail,
            session,
        )
        with self._lock:
            self._proxies[node] = peer_proxy
        return peer_proxy

    # ---- called by other node actors: the shared memory

    @ray.method(concurrency_group="replicas")
    def copy(self, parts: Sequence[Part], node: int, count: int) -> None:
        """Write a publication of a node on another machine."""
        self._replica.write(parts, node, count)

    @ray.method(concurrency_group="replicas")
    def known_of(self, node: int) -> tuple[int, Publication | None]:
        """Return a node's publication counter, and its last publication that arrived here."""
        return self._replica.count(node), self._replica.last_of(node)

    @ray.method(concurrency_group="replicas")
    def image(self) -> bytes:
        """Return all bytes of this machine's replica."""
        return self._replica.read([(0, self._replica.nbytes)])[0][1]

    @ray.method(concurrency_group="replicas")
    def expect(self) -> None:
        """Buffer the publications of other nodes until `fill`."""
        self._replica.expect()

    @ray.method(concurrency_group="replicas")
    def fill(self, image: bytes) -> None:
        """Copy the replica of another machine to this one."""
        self._replica.fill(image, self._place.size)


def _has_tls() -> bool:
    """Whether Ray encrypts the traffic between machines; these sockets do not."""
    return os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true")


# Each group has its own thread, and keeps the order of each caller's calls.
_GROUPS = {"updates": 1, "orders": 1, "kills": 1, "messages": 1, "replicas": 1}

_actor: Any = ray.remote  # its type hints lack concurrency groups
RemoteNodeActor = _actor(max_restarts=0, concurrency_groups=_GROUPS)(NodeActor)
"""`NodeActor` as a Ray actor class."""
