"""`Keeper`: the Ray actor of one node. It has the node's resources, and keeps its process.

    driver ──start, tell, kill──> Keeper ──pipe──> process of the node
    driver <──────news─────────── Keeper <──links── stand-ins for nodes of other machines

The node is a process of its own, as on one machine: what happens to it (killed, stopped, a call
that never returns) is seen from outside, within its machine, and does not take the actor along.
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

from muster.engines.local.door import socket_path
from muster.engines.local.handshake import Secrets
from muster.engines.local.runtime_dir import runtime_directory
from muster.engines.memory import SharedMemory
from muster.engines.orders import Present
from muster.engines.progress import ProgressPage
from muster.engines.ray.copies import Copy, Copying, Part, Publication
from muster.engines.ray.desk import Desk, News
from muster.engines.ray.process import Conception
from muster.engines.ray.stand_in import Letter, StandIn
from muster.engines.ray.versions import my_versions
from muster.engines.ray.watch import servers_here
from muster.errors import ClusterError
from muster.framework.node import Place

_util: Any = ray.util
_END_SECONDS = 30.0
_AFTER_RAYLET_SECONDS = 12.0


@dataclass(frozen=True)
class Whereabouts:
    """Where a keeper is, and with which versions."""

    machine: str
    """Ray's id of it."""
    address: str
    """What it is called by people."""
    directory: Path
    """Where its node's socket is."""
    pid: int
    memory: int
    """Descriptor, in that process, of the memory that nodes of the machine share."""
    versions: Mapping[str, str]


@dataclass(frozen=True)
class Neighbour:
    """Where another node is, as a keeper needs to know it."""

    place: Place
    machine: str
    directory: Path
    keeper: Any


@dataclass(frozen=True)
class Order:
    """What the node is told, and who it is about."""

    number: int
    """One more than that of the order before, for the same incarnation."""
    order: object
    neighbours: Sequence[Neighbour]


@dataclass(frozen=True)
class Answer:
    """What a driver hears that asks for news."""

    number: int
    news: Sequence[News]
    orders_heard: int
    """The number of the last order that the node was given."""


class Keeper:
    """Keeps one node.

    Any call may be made again, because whether it was heard is not known when its answer is lost.

    Args:
        place: The node's, as it is at first.
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
        self._stand_ins: dict[int, StandIn] = {}
        self._lock = threading.Lock()
        self._copy = Copy(self._memory)
        self._copying = Copying(place.node_id, self._copy, self._fail)
        self._desk = Desk(self._page, self._copying.publish)
        self._begun = -1
        self._orders_heard = 0
        self._left = threading.Event()
        threading.Thread(target=self._end_with_raylet, name="muster-fate", daemon=True).start()

    # ---- before the node starts

    def whereabouts(self) -> Whereabouts:
        """Say where this keeper is."""
        return Whereabouts(
            self._machine,
            _util.get_node_ip_address(),
            self._directory,
            os.getpid(),
            self._memory.fileno(),
            my_versions(),
        )

    def join_memory(self, pid: int, fd: int) -> None:
        """Use the memory of another keeper of this machine, instead of one of its own."""
        elders = os.open(f"/proc/{pid}/fd/{fd}", os.O_RDWR | os.O_CLOEXEC)
        # In place of its own, so that the descriptor that was told to the driver is the right one.
        os.dup2(elders, self._memory.fileno(), inheritable=False)
        os.close(elders)
        self._copy.use(self._memory)

    def know_machines(self, machines: Sequence[Sequence[Any]]) -> None:
        """Take note of the other machines of this run, each as the keepers that are on it."""
        self._copying.know(machines)

    def start(self, told: Conception, memory_lost: bool) -> None:
        """Start the node's process; once, however often this is said of one incarnation."""
        place = told.place
        if place.incarnation <= self._begun:
            return
        self._begun = place.incarnation
        self._orders_heard = 0
        self._copying.drain()
        self._place = place
        self._page.reset(place.node_id)
        told = replace(told, known=self._known, directory=self._directory)
        memory = -1 if memory_lost else self._memory.fileno()
        self._desk.start(told, self._page.fileno(), memory)

    # ---- while it lives

    @ray.method(concurrency_group="news")
    def news(self, heard: int, seconds: float) -> Answer:
        """Return what happened to the node; waits for so long if nothing did."""
        number, news = self._desk.news(heard, seconds)
        return Answer(number, news, self._orders_heard)

    @ray.method(concurrency_group="orders")
    def tell(self, orders: Sequence[Order], incarnation: int) -> None:
        """Give this incarnation of the node orders, each once, and in order.

        An order that is about others is given when they can be reached.
        """
        if incarnation != self._begun:
            return
        for each in orders:
            if each.number != self._orders_heard + 1:
                continue
            if isinstance(each.order, Present):
                for neighbour in each.neighbours:
                    self._introduce(neighbour)
            self._desk.tell(each.order)
            self._orders_heard = each.number

    @ray.method(concurrency_group="kills")
    def kill(self, incarnation: int) -> None:
        """End the process of this incarnation of the node, and all that it has started."""
        if incarnation == self._place.incarnation:
            self._desk.kill()

    @ray.method(concurrency_group="orders")
    def leave(self) -> None:
        """End the node's process and clean up; the actor is to be ended next."""
        self._left.set()
        self._desk.kill()
        with self._lock:
            stand_ins, self._stand_ins = list(self._stand_ins.values()), {}
        for each in stand_ins:
            each.close()
        self._directory_context.__exit__(None, None, None)
        # By itself, if the driver has no head any more that could end it.
        end = threading.Timer(_END_SECONDS, os._exit, (0,))
        end.daemon = True
        end.start()

    def _fail(self, error: ClusterError) -> None:
        self._desk.fail(error)

    def _end_with_raylet(self) -> None:
        """End with the raylet that started this process. Ray's workers outlive one that is killed.

        Nodes of a run that ends for it may use the time to save what they have. It is shorter than
        the head takes to notice: a keeper that replaces this one will find it gone.
        """
        raylet = servers_here(ray, is_own=False).get("raylet")
        if raylet is None:
            return
        with contextlib.suppress(ProcessLookupError):
            select.select([os.pidfd_open(raylet)], [], [])
        self._left.wait(_AFTER_RAYLET_SECONDS)
        self._desk.kill()
        shutil.rmtree(self._directory, ignore_errors=True)
        os._exit(1)

    # ---- other keepers' calls: links

    @ray.method(concurrency_group="letters")
    def link(self, keeper: Any, place: Place, incarnation: int, session: int) -> None:
        """Link a node of another machine to this one, if this is still that incarnation."""
        here = self._stand_ins.get(place.node_id)
        is_done = here is not None and here.session == session  # the answer to it got lost
        if incarnation == self._place.incarnation and not is_done:
            self._stand_in_for(place, keeper, session).connect(incarnation)

    @ray.method(concurrency_group="letters")
    def deliver(self, sender: int, number: int, letters: Sequence[Letter]) -> None:
        """Give the node what one of another machine has sent."""
        stand_in = self._stand_ins.get(sender)
        if stand_in is not None:
            stand_in.deliver(number, letters)

    @ray.method(concurrency_group="letters")
    def unlink(self, node: int) -> None:
        """Have the node see that one of another machine is away."""
        with self._lock:
            stand_in = self._stand_ins.pop(node, None)
        if stand_in is not None:
            stand_in.close()

    def _introduce(self, neighbour: Neighbour) -> None:
        """Have the node find another one at a socket beside its own."""
        if neighbour.machine == self._machine:
            there = socket_path(neighbour.directory, neighbour.place.node_id)
            here = socket_path(self._directory, neighbour.place.node_id)
            here.unlink(missing_ok=True)
            here.symlink_to(there)
        else:
            self._stand_in_for(neighbour.place, neighbour.keeper)

    def _stand_in_for(self, place: Place, keeper: Any, session: int | None = None) -> StandIn:
        node = place.node_id
        with self._lock:
            older = self._stand_ins.pop(node, None)
        if older is not None:
            older.close()
        stand_in = StandIn(
            place,
            self._place,
            self._known,
            self._directory,
            keeper,
            self._me,
            self._fail,
            session,
        )
        with self._lock:
            self._stand_ins[node] = stand_in
        return stand_in

    # ---- other keepers' calls: the shared memory

    @ray.method(concurrency_group="copies")
    def copy(self, parts: Sequence[Part], node: int, count: int) -> None:
        """Write what a node of another machine has published."""
        self._copy.write(parts, node, count)

    @ray.method(concurrency_group="copies")
    def known_of(self, node: int) -> tuple[int, Publication | None]:
        """Return how much a node has published, and the last of it that came here."""
        return self._copy.count(node), self._copy.last_of(node)

    @ray.method(concurrency_group="copies")
    def image(self) -> bytes:
        """Return all of this machine's copy."""
        return self._copy.read([(0, self._copy.nbytes)])[0][1]

    @ray.method(concurrency_group="copies")
    def expect(self) -> None:
        """Keep what other nodes publish until `fill`."""
        self._copy.expect()

    @ray.method(concurrency_group="copies")
    def fill(self, image: bytes) -> None:
        """Make this machine's copy like another one's."""
        self._copy.fill(image, self._place.size)


# Each group has a thread of its own, and keeps the order of each caller's calls.
_GROUPS = {"news": 1, "orders": 1, "kills": 1, "letters": 1, "copies": 1}

_actor: Any = ray.remote  # its types leave out groups
KeeperActor = _actor(max_restarts=0, concurrency_groups=_GROUPS)(Keeper)
"""`Keeper` as Ray makes it."""
