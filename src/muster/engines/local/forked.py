"""The fork server's own process, and the first lines of the processes that it forks.

    driver ──request, descriptors──> server ──fork──> node
    driver <──pid, pidfd──────────── server <──end of a node; what it left running is ended

Its only way to the world is one end of a socket pair that it inherited: there is no address that a
stranger could connect to. When it forks it has one thread, so that is safe. It ends when the driver
is gone, and the kernel ends every node with it.
"""

import contextlib
import importlib
import json
import os
import pickle
import select
import shutil
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import process, resource_tracker, spawn
from typing import Any, NoReturn

from muster.processes import (
    NODE_PROCESS,
    children,
    command_of,
    end_with,
    group_of,
    reap_orphans,
    variable_of,
)

MOST_FDS = 250
"""Descriptors that go with one request; the kernel takes 253."""
MOST_PATH = 4096
READY = b"ready"
"""The server's first message: its imports are done."""
_END_SECONDS = 2.0
_inherited: list[int] = []


@dataclass(frozen=True)
class Inherited:
    """A descriptor of a new process, by its number among those that came with the request."""

    index: int

    def detach(self) -> int:
        """Return it; it is the caller's to close."""
        return _inherited[self.index]


def serve(fd: int, modules: Sequence[str]) -> NoReturn:
    """Run as the fork server: import these modules, then fork until the driver ends."""
    # Ctrl-C, `systemctl stop` and a closed terminal are for the driver, which asks nodes to finish.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    reap_orphans()
    driver = socket.socket(fileno=fd)
    with _ending_with(driver):
        for name in modules:
            with contextlib.suppress(Exception):  # the node that needs it will say so
                importlib.import_module(name)
    try:
        driver.send(READY)
        _Server(driver).run()
    except BaseException:
        traceback.print_exc()
    os._exit(1)


@contextlib.contextmanager
def _ending_with(driver: socket.socket) -> Iterator[None]:
    """End this process if the driver ends meanwhile, whatever the main thread is doing."""
    is_done, done = os.pipe()

    def watch() -> None:
        poll = select.poll()
        poll.register(driver, 0)  # that the other end is closed is always reported
        poll.register(is_done, 0)
        if driver.fileno() in dict(poll.poll()):
            os._exit(0)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        os.close(done)
        thread.join()  # a process with one thread can be forked
        os.close(is_done)


class _Server:
    def __init__(self, driver: socket.socket) -> None:
        self._driver = driver
        self._nodes: dict[int, int] = {}
        """By process: where the driver reads how it ended."""
        self._directories: set[bytes] = set()
        """Of runs of the driver: removed here only if it was killed and did not do it."""
        # Python writes a byte there when a signal comes; its handler has nothing to do.
        self._ended, wake = socket.socketpair()
        self._ended.setblocking(False)
        wake.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(wake.detach(), warn_on_full_buffer=False)

    def run(self) -> None:
        while True:
            ready, _, _ = select.select([self._driver, self._ended], [], [])
            if self._ended in ready:
                self._ended.recv(1 << 12)
                self._on_exit()
            if self._driver in ready:
                self._fork()

    def _fork(self) -> None:
        directory, fds, _, _ = socket.recv_fds(self._driver, MOST_PATH, MOST_FDS)
        if not directory:
            self._leave()
        self._directories.add(directory)
        data, status, *rest = fds
        server = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            self._driver.send(f"-{error.errno}".encode())
            for fd in fds:
                os.close(fd)
            return
        if pid == 0:
            self._become(server, data, status, rest)
        self._nodes[pid] = status
        pidfd = os.pidfd_open(pid)  # here, where its number cannot be another one's yet
        socket.send_fds(self._driver, [str(pid).encode()], [pidfd])
        for fd in (data, pidfd, *rest):
            os.close(fd)

    def _leave(self) -> NoReturn:
        """End with the driver, with all nodes and what they started; remove what is left."""
        for pid in self._nodes:
            os.kill(pid, signal.SIGKILL)
        for directory in self._directories:
            shutil.rmtree(directory, ignore_errors=True)
        deadline = time.monotonic() + _END_SECONDS
        while self._nodes and time.monotonic() < deadline:
            self._on_exit()
            time.sleep(0.001)
        os._exit(0)

    def _become(self, server: int, data: int, status: int, fds: list[int]) -> NoReturn:
        """Set up the new process, and run it."""
        code = 1
        try:
            end_with(server)
            os.close(signal.set_wakeup_fd(-1))
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._driver.close()
            self._ended.close()
            for fd in (status, *self._nodes.values()):
                os.close(fd)
            code = _live(data, fds)
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(code)

    def _on_exit(self) -> None:
        """Record every process that has ended."""
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None:
                return
            if ended.si_pid in self._nodes:
                self._bury_node(ended.si_pid)
            else:
                os.waitpid(ended.si_pid, 0)  # an orphan

    def _bury_node(self, pid: int) -> None:
        """End what a dead node has left running, and tell the driver how it ended."""
        # Before it is waited for: until then its number is no one else's.
        with contextlib.suppress(OSError):
            os.killpg(pid, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        status = self._nodes.pop(pid)
        left = self._end_orphans(pid)
        self._directories = {each for each in self._directories if os.path.isdir(each)}
        with contextlib.suppress(OSError):  # the driver may have no more interest in it
            os.write(status, json.dumps({"code": code, "left": left}).encode())
        os.close(status)

    def _end_orphans(self, node: int) -> list[str]:
        """End what a dead node has detached from itself, and say what that was.

        Whose an orphan is, its environment says. One that has another environment is ended when
        there is no node left whose it could be.
        """
        left, deadline = [], time.monotonic() + _END_SECONDS
        mine = {str(node), None} if not self._nodes else {str(node)}
        while time.monotonic() < deadline:  # later: it is where no signal reaches it
            orphans = [
                pid
                for pid in children()
                if pid not in self._nodes and variable_of(pid, NODE_PROCESS) in mine
            ]
            if not orphans:
                break
            for pid in orphans:
                if group_of(pid) != node:  # else it was ended above
                    left.append(f"{command_of(pid)} (process {pid})")
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            for pid in orphans:
                while os.waitpid(pid, os.WNOHANG)[0] == 0 and time.monotonic() < deadline:
                    time.sleep(0.001)
        return left


def _live(data: int, fds: list[int]) -> int:
    """Run what the driver sent; return the exit code."""
    sentinel, tracker, *_inherited[:] = fds
    tracker_here: Any = resource_tracker._resource_tracker
    tracker_here._fd = tracker
    me: Any = process.current_process()
    with open(data, "rb") as sent:
        sent.seek(0)
        me._inheriting = True
        try:
            spawn.prepare(pickle.load(sent))
            child = pickle.load(sent)
        finally:
            del me._inheriting
    code: int = child._bootstrap(sentinel)
    return code
