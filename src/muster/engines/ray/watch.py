"""`ClusterWatch`: notices within seconds that a run's Ray cluster is lost; Ray would wait forever.

    servers of this machine (pidfd) ──ended──┐
    the head, polled every 2 s ──35 s silent─┼──> lost: a descriptor, an error, calls that return
    the head, on this machine  ──"is dead"───┘

A lost raylet does not come back. A lost head may come back, if Ray stores its state: so the head
has some time, but none if the cluster is this run's own.
"""

import contextlib
import importlib
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from muster.engines.ray.side_effects import note_stuck_thread
from muster.errors import ClusterError

HEAD_SECONDS = 35.0
"""Maximum seconds without an answer of the head. Ray allows 60 s, and then ends the process."""
_ASK_EVERY = 2.0
_LOOK_EVERY = 1.0
_LISTENS_SECONDS = 3.0
_ANSWER_SECONDS = 5.0
_AGAIN = "start the cluster again, then the same command with --resume"
_AGAIN_OWN = "the same command with --resume, which continues from the last checkpoint"

T = TypeVar("T")


class ClusterWatch:
    """Watches the cluster that this process has joined, on two threads, until it is closed.

    Args:
        ray: The module.
        address: HOST:PORT of the head.
        is_own: Whether the cluster was started for this run.
    """

    def __init__(self, ray: Any, address: str, is_own: bool) -> None:
        self._ray = ray
        self._address = address
        self._is_own = is_own
        self._fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._error: ClusterError | None = None
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._stop_read, self._stop_write = os.pipe()
        self._silent = 0.0
        self._node = ray.get_runtime_context().get_node_id()
        self._servers: dict[str, int] = {}
        try:
            for name, pid in servers_here(ray, is_own).items():
                self._servers[name] = os.pidfd_open(pid)
        except OSError:  # it has already exited
            self._lose_server("raylet")
        self._threads = [
            threading.Thread(target=work, name=f"muster-cluster-{name}", daemon=True)
            for name, work in (("watch", self._watch), ("ask", self._ask))
        ]
        for thread in self._threads:
            thread.start()

    # ---- for any thread

    def fileno(self) -> int:
        """Return a descriptor that becomes readable once the cluster is lost."""
        return self._fd

    def is_lost(self) -> bool:
        """Whether the cluster is lost."""
        return self._error is not None

    def error(self) -> ClusterError:
        """Return the error that says what is lost."""
        assert self._error is not None
        return self._error

    def lose(self, error: ClusterError) -> None:
        """Mark the cluster as lost; the first reason counts."""
        with self._changed:
            if self._error is None:
                self._error = error
                os.eventfd_write(self._fd, 1)
            self._changed.notify_all()

    def call(self, work: Callable[[], T]) -> T:
        """Run some work with Ray on a separate thread, and return its result.

        Raises:
            ClusterError: The cluster was lost meanwhile. A thread stuck in Ray stays behind.
        """
        if self.is_lost():
            raise self.error()
        done: list[T] = []
        failed: list[BaseException] = []

        def do() -> None:
            try:
                done.append(work())
            except BaseException as error:
                failed.append(error)
            with self._changed:
                self._changed.notify_all()

        thread = threading.Thread(target=do, name="muster-cluster-call", daemon=True)
        thread.start()
        try:
            with self._changed:
                self._changed.wait_for(lambda: done or failed or self.is_lost())
        finally:
            if not done and not failed:
                note_stuck_thread(thread.name)
        if done:
            return done[0]
        raise self.error() if self.is_lost() else failed[0]

    def close(self) -> None:
        """Stop watching."""
        self._closing.set()
        os.write(self._stop_write, b"x")
        for thread in self._threads:
            thread.join(_ANSWER_SECONDS + 1.0)
        if not any(thread.is_alive() for thread in self._threads):
            for fd in (*self._servers.values(), self._stop_read, self._stop_write, self._fd):
                os.close(fd)

    # ---- on the threads

    def _watch(self) -> None:
        poll = select.poll()
        names = {fd: name for name, fd in self._servers.items()}
        for fd in (*names, self._stop_read):
            poll.register(fd, select.POLLIN)
        looked = time.monotonic()
        while not self.is_lost():
            ended = [names[fd] for fd, _ in poll.poll(1000 * _LOOK_EVERY) if fd in names]
            if self._closing.is_set():
                return
            # While this process was stopped it could receive no answer: such time does not count.
            before, looked = looked, time.monotonic()
            self._silent += min(looked - before, 2 * _LOOK_EVERY)
            if ended:
                self._lose_server(ended[0])
            elif self._silent > HEAD_SECONDS:
                self._lose(f"its head at {self._address} has not answered for {HEAD_SECONDS:g} s")

    def _ask(self) -> None:
        """Poll the head: does it count this machine as alive?"""
        core: Any = importlib.import_module("ray._raylet")
        here = core.NodeID.from_hex(self._node)
        client = None
        while not self._closing.wait(_ASK_EVERY):
            if self.is_lost():  # Ray would wait for a lost head, and delay `close`
                return
            with contextlib.suppress(self._ray.exceptions.RayError, OSError, RuntimeError):
                client = client or core.GcsClient(address=self._address)
                (is_alive,) = client.check_alive([here], timeout=_ANSWER_SECONDS)
                self._silent = 0.0
                if not is_alive and not self._closing.is_set():
                    self._lose("its head considers this machine lost")
                    return

    def _lose_server(self, name: str) -> None:
        if self._is_own or self._head_listens():
            self._lose(f"Ray's {name} on this machine has ended: it failed, or was killed")
        else:
            self._lose(
                f"its head cannot be reached any more, and Ray's {name} on this machine has ended"
            )

    def _head_listens(self) -> bool:
        host, _, port = self._address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), _LISTENS_SECONDS).close()
        except OSError:
            return False
        return True

    def _lose(self, why: str) -> None:
        whose = "of this run" if self._is_own else f"at {self._address}"
        fix = _AGAIN_OWN if self._is_own else _AGAIN
        self.lose(ClusterError(f"the Ray cluster {whose} is lost", why, fix))


def servers_here(ray: Any, is_own: bool) -> Mapping[str, int]:
    """Return the Ray processes on this machine that this process depends on, by name.

    Args:
        ray: The module.
        is_own: Whether the head is one of them.
    """
    node = ray._private.worker.global_worker.node
    found = {}
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(node.raylet_socket_name)
        who = link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    raylet = struct.unpack("3i", who)[0]
    if raylet:  # 0 if it is in another container
        found["raylet"] = raylet
    if is_own:
        found["gcs_server"] = node.all_processes["gcs_server"][0].process.pid
    return found
