"""`ProcessMonitor`: the thread of a node actor that starts a node's process and watches it.

    process: its pipe, output, exit and progress  ->  updates  ->  the driver, which polls

The driver's supervisor decides; the monitor only observes, reports, and executes orders.
"""

import contextlib
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection, Pipe

from muster.engines.member import exit_status, kill_group
from muster.engines.orders import Publish, Raised
from muster.engines.progress import ProgressPage, Row
from muster.engines.ray.process import ProcessSetup
from muster.errors import ClusterError

_CHUNK = 64 << 10
EXIT_MONITOR_FAILED = 72
"""Exit code of a node actor whose monitor has failed."""


@dataclass(frozen=True, slots=True)
class MessageUpdate:
    """The node sent its supervisor a message."""

    order: object


@dataclass(frozen=True, slots=True)
class OutputUpdate:
    """The node wrote to its standard output or error."""

    data: bytes
    is_error: bool


@dataclass(frozen=True, slots=True)
class ProgressUpdate:
    """The node's progress counters."""

    row: Row


@dataclass(frozen=True, slots=True)
class EndUpdate:
    """The node's process has ended."""

    status: str


@dataclass(frozen=True, slots=True)
class FailureUpdate:
    """The cluster failed this run: the three lines of the error that ends it."""

    what: str
    why: str
    fix: str


NodeUpdate = MessageUpdate | OutputUpdate | ProgressUpdate | EndUpdate | FailureUpdate


class ProcessMonitor:
    """Starts and watches the process of a node, one at a time.

    Args:
        page: Where the process counts its progress.
        publish: Called with the node's publications, in order; must not block.
    """

    def __init__(self, page: ProgressPage, publish: Callable[[Publish], None]) -> None:
        self._page = page
        self._publish = publish
        self._updates: list[NodeUpdate] = []
        self._told: list[NodeUpdate] = []
        self._number = 0
        """Number of the last batch of updates; the batch is kept until it is acknowledged."""
        self._changed = threading.Condition()
        self._selector = selectors.DefaultSelector()
        self._asked: list[Callable[[], None]] = []
        self._wake_read, self._wake_write = socket.socketpair()
        self._wake_read.setblocking(False)
        self._selector.register(self._wake_read, selectors.EVENT_READ, self._woken)
        self._process: subprocess.Popen[bytes] | None = None
        self._node = 0
        # One thread for its whole life: the kernel ends a process with the thread that started it.
        threading.Thread(target=self._serve, name="muster-monitor", daemon=True).start()

    # ---- for any thread

    def start(self, told: ProcessSetup, progress_fd: int, memory_fd: int) -> None:
        """Start a process; the previous one has ended, and its updates are dropped."""
        with self._changed:
            self._updates, self._told, self._number = [], [], 0
        self._ask(partial(self._start, told, progress_fd, memory_fd))

    def tell(self, order: object) -> None:
        """Send the node an order, if it is alive."""
        self._ask(partial(self._tell, order))

    def kill(self) -> None:
        """Kill the process, and everything that it has started."""
        self._ask(self._kill)

    def fail(self, error: ClusterError) -> None:
        """Report an error with which the driver has to end the run."""
        self._report(FailureUpdate(*error.args))

    def updates(self, heard: int, seconds: float) -> tuple[int, list[NodeUpdate]]:
        """Return a number and the updates since the last answer; waits if there are none.

        Args:
            heard: The number of the last answer that arrived; a lost answer is repeated.
            seconds: Maximum wait.
        """
        with self._changed:
            if heard == self._number:
                self._changed.wait_for(lambda: bool(self._updates), seconds)
                self._told, self._updates = self._updates, []
                self._number += 1
            return self._number, [*self._told, ProgressUpdate(self._page.read(self._node))]

    # ---- on the thread

    def _ask(self, what: Callable[[], None]) -> None:
        with self._changed:
            self._asked.append(what)
        with contextlib.suppress(OSError):
            self._wake_write.send(b"x")

    def _serve(self) -> None:
        try:
            while True:
                for key, _ in self._selector.select():
                    if key.fd in self._selector.get_map():
                        key.data()
        except BaseException:
            # A node actor that can observe nothing must not look alive.
            traceback.print_exc()
            os._exit(EXIT_MONITOR_FAILED)

    def _woken(self) -> None:
        self._wake_read.recv(4096)
        with self._changed:
            asked, self._asked = self._asked, []
        for what in asked:
            what()

    def _start(self, told: ProcessSetup, progress_fd: int, memory_fd: int) -> None:
        self._node = told.place.node_id
        self._pipe, childs_end = Pipe()
        (self._out, out), (self._err, err) = os.pipe(), os.pipe()
        inherited = [childs_end.fileno(), out, err, progress_fd]
        if memory_fd >= 0:
            inherited.append(memory_fd)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "muster.engines.ray.process", str(childs_end.fileno())],
            pass_fds=inherited,
            stdin=subprocess.DEVNULL,
            process_group=0,  # everything it starts is ended with it
        )
        for end in (out, err):
            os.close(end)
        childs_end.close()
        self._sentinel = os.pidfd_open(self._process.pid)
        register = partial(self._selector.register, events=selectors.EVENT_READ)
        register(self._pipe.fileno(), data=partial(self._on_message, self._pipe))
        register(self._sentinel, data=self._on_exit)
        for fd, is_error in ((self._out, False), (self._err, True)):
            os.set_blocking(fd, False)
            register(fd, data=partial(self._read, fd, is_error))
        with contextlib.suppress(OSError):
            self._pipe.send(replace(told, out=out, err=err, progress=progress_fd, memory=memory_fd))

    def _tell(self, order: object) -> None:
        if self._process is not None:
            with contextlib.suppress(OSError):
                self._pipe.send(order)

    def _kill(self) -> None:
        if self._process is not None and not kill_group(self._process.pid):
            self._process.send_signal(signal.SIGKILL)

    def _on_message(self, pipe: Connection) -> None:
        try:
            order = pipe.recv()
        except (EOFError, OSError):
            self._selector.unregister(pipe.fileno())
            return
        except Exception as error:  # the result cannot be unpickled here
            order = Raised.of(error)
        if isinstance(order, Publish):
            self._publish(order)
        else:
            self._report(MessageUpdate(order))

    def _read(self, fd: int, is_error: bool) -> bool:
        try:
            data = os.read(fd, _CHUNK)
        except BlockingIOError:
            return False
        if not data:
            self._forget(fd)
            return False
        self._report(OutputUpdate(data, is_error))
        return True

    def _on_exit(self) -> None:
        process = self._process
        assert process is not None
        code = process.wait()
        kill_group(process.pid)  # a process it left running may hold the other end of the pipe
        while self._pipe.fileno() in self._selector.get_map() and self._pipe.poll():
            self._on_message(self._pipe)
        for fd, is_error in ((self._out, False), (self._err, True)):
            while self._read(fd, is_error):
                pass
        for fd in (self._sentinel, self._out, self._err):
            self._forget(fd)
            os.close(fd)
        self._forget(self._pipe.fileno())
        self._pipe.close()
        self._process = None
        self._report(EndUpdate(exit_status(code)))

    def _forget(self, fd: int) -> None:
        if fd in self._selector.get_map():
            self._selector.unregister(fd)

    def _report(self, updates: NodeUpdate) -> None:
        with self._changed:
            self._updates.append(updates)
            self._changed.notify_all()
