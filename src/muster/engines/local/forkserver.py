"""`ForkServer`: the source of node processes, with the heavy imports already done.

The server is a separate process (`forked.py`), shared by all runs of this process. Numeric
libraries are told to start no threads while the server imports them. A killed server is restarted.
"""

import atexit
import contextlib
import io
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing import context, reduction, spawn
from pathlib import Path
from types import FunctionType
from typing import Any

from muster.engines.local.child import THREAD_VARIABLES
from muster.engines.local.forked import MOST_FDS, READY, Inherited
from muster.engines.local.tracker import python_flags, tracker
from muster.engines.member import exit_status
from muster.errors import MusterError

_HEAVY = ("numpy", "torch", "gymnasium", "numba", "muster.flow.node", "muster.engines.local.child")
"""Modules that the fork server imports, if this process has imported them, or announces it."""
_SERVE = "import sys; sys.path[:] = {path!r}; from muster.engines.local.forked import serve; "
_TRIES = 2
_END_SECONDS = 5.0


class ForkError(MusterError, RuntimeError):
    """A process for a node cannot be started."""


@dataclass(frozen=True)
class Ending:
    """How a process ended."""

    code: int | None
    """Its exit code, negative for a signal; None if the fork server has exited too."""
    left: tuple[str, ...] = ()
    """Descriptions of the processes that it had detached, which were ended."""


@dataclass
class Forked:
    """A process that the server has forked.

    Attributes:
        pid: Its process id.
        pidfd: Becomes readable once it has ended.
    """

    pid: int
    pidfd: int
    _status: int
    _ending: Ending | None = field(default=None, init=False)

    def kill(self) -> None:
        """Kill it. The server then ends everything that it has started."""
        self.send(signal.SIGKILL)

    def send(self, number: int) -> None:
        """Send it a signal, if it is alive."""
        with contextlib.suppress(OSError):
            signal.pidfd_send_signal(self.pidfd, number)

    def wait(self) -> Ending:
        """Wait until it has ended, with everything that it had started; return how."""
        if self._ending is None:
            _readable(self.pidfd, None)
            said = os.read(self._status, 1 << 16) if _readable(self._status, _END_SECONDS) else b""
            if said:
                found = json.loads(said)
                self._ending = Ending(found["code"], tuple(found["left"]))
            else:
                with contextlib.suppress(OSError):
                    os.killpg(self.pid, signal.SIGKILL)
                self._ending = Ending(None)
        return self._ending

    def close(self) -> None:
        """Release a process that has ended."""
        os.close(self.pidfd)
        os.close(self._status)


class ForkServer:
    """The fork server of this process, started on first use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._sock: socket.socket | None = None
        self._is_ready = False
        self._modules: list[str] = []
        self._owner = 0

    def prepare(self, modules: Sequence[str] = ()) -> None:
        """Start the server if it is not running; does not wait for its imports.

        Args:
            modules: Additional modules to import, if the server is not running yet.
        """
        with self._lock:
            self._ensure(modules)

    def wait_until_ready(self, within: float) -> None:
        """Wait until the imports are done, so that forking takes milliseconds.

        Args:
            within: Maximum seconds for the imports.

        Raises:
            ForkError: The imports take longer, or the server keeps dying.
        """
        with self._lock:
            why = ""
            for _ in range(_TRIES):
                self._ensure()
                if self._hears_ready("the nodes", within):
                    return
                why = self._why_gone()
        raise _no_process("the nodes", why)

    def fork(
        self,
        name: str,
        target: Callable[..., None],
        args: tuple[Any, ...],
        within: float,
        directory: Path,
        needs_main: bool = True,
    ) -> Forked:
        """Start a process that calls `target(*args)`.

        Args:
            name: Name of the process in `multiprocessing`.
            target: A function that the new process can import.
            args: Its arguments, pickled as for any new process of `multiprocessing`.
            within: Maximum seconds for the server's imports, if it was just started.
            directory: Directory of the run; removed if this process is killed and cannot do it.
            needs_main: Whether the new process imports this program's main module, as processes of
                `multiprocessing` do. It always does if something in `args` is from that module.

        Raises:
            ForkError: The system provides no process, or the server keeps dying.
        """
        request = _Request(name, target, args, directory, needs_main)
        ours, theirs = os.pipe()
        try:
            with self._lock:
                answer, fds = self._ask(request, theirs, within)
            pid = int(answer)
            if pid < 0:
                raise _no_process(name, os.strerror(-pid))
        except BaseException:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
            request.close()
        return Forked(pid, fds[0], ours)

    def stop(self) -> None:
        """End the server, if this process started it."""
        with self._lock:
            if self._owner == os.getpid():
                self._forget()

    def _ask(self, request: "_Request", status: int, within: float) -> tuple[bytes, list[int]]:
        why = ""
        for _ in range(_TRIES):
            self._ensure()
            assert self._sock is not None
            if self._hears_ready(request.name, within):
                try:
                    request.send(self._sock, status)
                    answer, fds = self._receive(request.name, within)
                    if answer:
                        return answer, fds
                except ConnectionError:
                    pass
            # The server was killed. A process that it forked for this request ended with it.
            why = self._why_gone()
        raise _no_process(request.name, why)

    def _hears_ready(self, name: str, within: float) -> bool:
        """Wait for the message that the imports are done; False if the server has exited."""
        if not self._is_ready:
            with contextlib.suppress(ConnectionError):
                self._is_ready = self._receive(name, within)[0] == READY
        return self._is_ready

    def _receive(self, name: str, within: float) -> tuple[bytes, list[int]]:
        assert self._sock is not None
        self._sock.settimeout(within)
        try:
            answer, fds, _, _ = socket.recv_fds(self._sock, 64, 1)
        except TimeoutError:
            self._forget(at_once=True)
            raise _no_process(name, f"no answer in {within:g} s") from None
        return answer, fds

    def _why_gone(self) -> str:
        return f"the fork server {exit_status(self._forget()).removeprefix('it ')}"

    def _ensure(self, modules: Sequence[str] = ()) -> None:
        if self._owner != os.getpid():  # inherited from the process that forked this one
            self._process = self._sock = None
        if self._process is not None and self._process.poll() is None:
            return
        if self._process is not None:
            self._forget()
        self._modules = self._modules or [
            *(name for name in _HEAVY if modules or name in sys.modules),
            *modules,
        ]
        self._is_ready = False
        self._sock, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        code = f"{_SERVE.format(path=sys.path)}serve({theirs.fileno()}, {self._modules!r})"
        self._owner = os.getpid()
        with theirs:
            self._process = subprocess.Popen(
                [spawn.get_executable(), *python_flags(), "-c", code],
                pass_fds=[theirs.fileno()],
                env={**os.environ, **dict.fromkeys(THREAD_VARIABLES, "1")},
                stdin=subprocess.DEVNULL,
                process_group=0,  # a signal to the driver's group is for the driver alone
            )

    def _forget(self, at_once: bool = False) -> int | None:
        """End the server, and return its exit code."""
        process, self._process = self._process, None
        if self._sock is not None:
            self._sock.close()
            self._sock = None
        if process is None:
            return None
        if at_once:
            process.kill()
        try:
            return process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()


class _Request:
    """The request for a new process: its setup, and the descriptors that go with it.

    While it is pickled, it acts as what `multiprocessing` calls a spawning popen.
    """

    DupFd = Inherited

    def __init__(
        self,
        name: str,
        target: Callable[..., None],
        args: tuple[Any, ...],
        directory: Path,
        needs_main: bool,
    ) -> None:
        self.name = name
        self._directory = directory
        self._fds: list[int] = []
        child = context.ForkServerProcess(target=target, args=args, name=name)
        first, then = io.BytesIO(), io.BytesIO()
        spawning: Any = self
        context.set_spawning_popen(spawning)
        try:
            pickler = _Pickler(then)
            pickler.dump(child)
            preparation = spawn.get_preparation_data(name)
            if not needs_main and not pickler.names_main:
                for key in ("init_main_from_name", "init_main_from_path"):
                    preparation.pop(key, None)
            reduction.dump(preparation, first)
        finally:
            context.set_spawning_popen(None)
        self._data = os.memfd_create("muster-node", os.MFD_CLOEXEC)
        with open(self._data, "wb", closefd=False) as file:
            file.write(first.getbuffer())
            file.write(then.getbuffer())

    def duplicate_for_child(self, fd: int) -> int:
        """Add a descriptor to the request; return its position."""
        self._fds.append(fd)
        if len(self._fds) > MOST_FDS - 4:
            raise ValueError("too many descriptors for one process")
        return len(self._fds) - 1

    def send(self, sock: socket.socket, status: int) -> None:
        """Send the request to the server, with the descriptor for the exit status."""
        me = os.pidfd_open(os.getpid())
        try:
            fds = [self._data, status, me, tracker(), *self._fds]
            socket.send_fds(sock, [os.fsencode(self._directory)], fds)
        finally:
            os.close(me)

    def close(self) -> None:
        """Close the request's data."""
        os.close(self._data)


class _Pickler(reduction.ForkingPickler):
    """Records whether it pickles anything from the main module."""

    names_main = False

    def persistent_id(self, obj: Any) -> None:
        """Inspect every object, and pickle it as usual."""
        named = obj if isinstance(obj, type | FunctionType) else type(obj)
        if named.__module__ == "__main__":
            self.names_main = True


def _readable(fd: int, seconds: float | None) -> bool:
    """Wait until a descriptor is readable, at most this many seconds."""
    poll = select.poll()  # `select.select` supports no descriptor above 1023
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(None if seconds is None else 1000 * seconds))


def _no_process(name: str, why: str) -> ForkError:
    return ForkError(
        f"no process for {name} can be started",
        why,
        "fewer --workers, or a higher limit of processes (ulimit -u, or that of the container)",
    )


SERVER = ForkServer()
atexit.register(SERVER.stop)
