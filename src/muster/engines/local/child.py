"""The process of a node, from start to exit."""

import contextlib
import ctypes
import faulthandler
import importlib
import io
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TextIO

from muster.engines.base import NodeMain
from muster.engines.local.handshake import Secrets
from muster.engines.local.transport import LocalTransport
from muster.engines.memory import SharedMemory
from muster.engines.orders import Raised, Returned
from muster.engines.progress import ProgressPage
from muster.errors import show_warnings_plainly
from muster.exiting import leave_within
from muster.framework.node import NODE_MODULE, Place
from muster.framework.signals import STOP_SIGNALS
from muster.processes import NODE_PROCESS, end_with

WHERE = signal.SIGUSR2
"""The signal that asks a node to write its stacks to its log."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEPT_BYTES = 32 << 20

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMBA_NUM_THREADS",
)
"""Environment variables that set the number of threads of numeric libraries."""


@dataclass(frozen=True)
class NodeSetup:
    """Everything that a node's process receives."""

    place: Place
    known: Secrets
    directory: Path
    parent: Connection
    out: Connection
    err: Connection
    progress: ProgressPage
    memory: SharedMemory | None
    is_spread: bool
    environment: Mapping[str, str]
    threads: int
    cores: frozenset[int] | None
    main: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    log: Path | None = None
    """File for the stacks after a crash or hang; None for standard error."""
    grace: float = 10.0
    """Seconds that it has to end once `main` is done."""


def run_as_node(setup: NodeSetup) -> None:
    """Run `main` as a node, and send the supervisor its result or exception."""
    end_with(os.getppid())
    # Its own process group, so that everything it starts can be ended with it.
    os.setpgid(0, 0)
    # The parent receives the signals, and asks all nodes to finish.
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    _keep_freed_memory()
    _speak_through(setup.out, setup.err)
    _tell_where_it_was(setup.log)
    os.environ.clear()
    os.environ.update(setup.environment)
    os.environ[NODE_PROCESS] = str(os.getpid())
    _share_cores(setup.threads, setup.cores)
    logging.basicConfig(format="%(message)s")
    show_warnings_plainly()
    transport = LocalTransport(
        setup.place,
        setup.known,
        setup.directory,
        setup.parent,
        setup.progress.row(setup.place.node_id),
        setup.memory,
        setup.is_spread,
    )
    run_node: NodeMain = importlib.import_module(NODE_MODULE).run_node
    try:
        value = run_node(transport, setup.main, setup.args, setup.kwargs)
        transport.tell(_sendable(value))
    except BaseException as error:
        transport.tell(Raised.of(error))
    leave_within(setup.grace, setup.place.name)
    sys.stdout.flush()
    sys.stderr.flush()


def _sendable(value: Any) -> Returned:
    from multiprocessing.reduction import ForkingPickler

    try:
        ForkingPickler.dumps(value)
    except Exception as error:
        raise TypeError(
            f"main returned {type(value).__name__}, which cannot be sent to the parent: {error}"
        ) from error
    return Returned(value)


def _keep_freed_memory() -> None:
    """Make malloc keep freed memory for the next message of the same size.

    By default glibc returns large blocks at once and requests fresh pages for the next ones, which
    costs more than copying a message into them.
    """
    with contextlib.suppress(AttributeError):  # another C library
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES)
        libc.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


def _speak_through(out: Connection, err: Connection) -> None:
    """Make the pipes to the parent this process's standard output and error, for C code too."""
    for number, pipe in ((1, out), (2, err)):
        os.dup2(pipe.fileno(), number)
        pipe.close()
    sys.stdout, sys.stderr = _line_by_line(1), _line_by_line(2)


def _tell_where_it_was(log: Path | None) -> None:
    """Write the stack of every thread when the process crashes, or is asked to."""
    try:
        fd = 2 if log is None else os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    except OSError:
        fd = 2
    faulthandler.enable(fd)
    faulthandler.register(WHERE, fd)


def _line_by_line(fd: int) -> TextIO:
    raw = io.FileIO(fd, "w", closefd=False)
    text = io.TextIOWrapper(
        io.BufferedWriter(raw), encoding="utf-8", errors="replace", line_buffering=True
    )
    return text


def _share_cores(threads: int, cores: frozenset[int] | None) -> None:
    for name in THREAD_VARIABLES:
        os.environ.setdefault(name, str(threads))
    if cores is not None:
        os.sched_setaffinity(0, cores)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(threads)
