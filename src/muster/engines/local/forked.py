"""The process of the fork server, and the first steps of the processes that it forks.

    driver ──request, descriptors──> server ──fork──> node
    driver <──pid, pidfd──────────── server <──exit of a node; processes it left are ended

The server communicates only over one end of a socket pair that it inherited: there is no address to
which a stranger could connect. It has only one thread when it forks, which makes forking safe. It
ends when the driver has exited, and the kernel ends every node with it.
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
"""Maximum number of descriptors in one request; the kernel accepts 253."""
MOST_PATH = 4096
READY = b"ready"
"""The server's first message: its imports are done."""
_END_SECONDS = 2.0
_inherited: list[int] = []


@dataclass(frozen=True)
class Inherited:
    """A descriptor of a new process, by its position among those sent with the request."""

    index: int

    def detach(self) -> int:
        """Return the descriptor; the caller has to close it."""
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
            with contextlib.suppress(Exception):  # the node that needs the module will report it
                importlib.import_module(name)
    try:
        driver.send(READY)
        _ForkServer(driver).run()
    except BaseException:
        traceback.print_exc()
    os._exit(1)


@contextlib.contextmanager
def _ending_with(driver: socket.socket) -> Iterator[None]:
    """End this process if the driver ends meanwhile, whatever the main thread is doing."""
    is_done, done = os.pipe()

    def watch() -> None:
        poll = select.poll()
        poll.register(driver, 0)  # poll always reports that the other end is closed
        poll.register(is_done, 0)
        if driver.fileno() in dict(poll.poll()):
            os._exit(0)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        os.close(done)
        thread.join()  # a process with one thread can be forked safely
        os.close(is_done)


class _ForkServer:
    def __init__(self, driver: socket.socket) -> None:
        self._driver = driver
        self._nodes: dict[int, int] = {}
        """By process id: the descriptor to which its exit status is written for the driver."""
        self._directories: set[bytes] = set()
        """Directories of the driver's runs: removed here only if the driver was killed."""
        # Python writes a byte to the socket when a signal arrives; the handler itself does nothing.
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
            with contextlib.suppress(OSError):  # a killed driver is noticed by the next request
                self._driver.send(f"-{error.errno}".encode())
            for fd in fds:
                os.close(fd)
            return
        if pid == 0:
            self._become(server, data, status, rest)
        self._nodes[pid] = status
        pidfd = os.pidfd_open(pid)  # here, where the process id cannot have been reused yet
        try:
            socket.send_fds(self._driver, [str(pid).encode()], [pidfd])
        except OSError:  # the driver was killed after it had asked
            self._leave()
        for fd in (data, pidfd, *rest):
            os.close(fd)

    def _leave(self) -> NoReturn:
        """End with the driver: end all nodes and what they started; remove the directories left."""
        for pid in self._nodes:
            os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + _END_SECONDS
        while self._nodes and time.monotonic() < deadline:
            self._on_exit()
            time.sleep(0.001)
        for directory in self._directories:  # last: a node that still ran could add a file
            shutil.rmtree(directory, ignore_errors=True)
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
        """Handle every process that has ended."""
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
        """End everything that a dead node left running, and tell the driver how the node ended."""
        # Before waiting for it: until then its process id cannot be reused.
        with contextlib.suppress(OSError):
            os.killpg(pid, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        status = self._nodes.pop(pid)
        left = self._end_orphans(pid)
        self._directories = {each for each in self._directories if os.path.isdir(each)}
        with contextlib.suppress(OSError):  # the driver may not need it any more
            os.write(status, json.dumps({"code": code, "left": left}).encode())
        os.close(status)

    def _end_orphans(self, node: int) -> list[str]:
        """End the processes that a dead node has detached, and return their descriptions.

        An environment variable tells the node of an orphan. An orphan with another environment is
        ended when no node is left to which it could belong.
        """
        left, deadline = [], time.monotonic() + _END_SECONDS
        mine = {str(node), None} if not self._nodes else {str(node)}
        while time.monotonic() < deadline:  # later: it is in a state where no signal reaches it
            orphans = [
                pid
                for pid in children()
                if pid not in self._nodes and variable_of(pid, NODE_PROCESS) in mine
            ]
            if not orphans:
                break
            for pid in orphans:
                if group_of(pid) != node:  # else the group kill has ended it
                    left.append(f"{command_of(pid)} (process {pid})")
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            for pid in orphans:
                while os.waitpid(pid, os.WNOHANG)[0] == 0 and time.monotonic() < deadline:
                    time.sleep(0.001)
        return left


def _live(data: int, fds: list[int]) -> int:
    """Run the request of the driver; return the exit code."""
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
