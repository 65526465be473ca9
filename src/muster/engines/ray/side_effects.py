"""Undoes, or prevents, what Ray does to a process that joins a cluster.

Every block here leaves the process as it found it.
"""

import atexit
import contextlib
import importlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from muster.errors import ClusterError

_SHUTDOWN_SECONDS = 8.0
_LOOK_EVERY = 0.2
_stuck_threads: list[str] = []
"""Names of threads that are stuck in a call to Ray."""
_LOOPBACK_ENV = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"


@contextlib.contextmanager
def environment(ray: Any) -> Iterator[None]:
    """Restore Ray's environment variables after the block, and clear what Ray cached of them.

    Within the block, and while one of our threads may still call Ray, Ray does not start by itself.
    """
    before = _ray_variables()
    hook: Any = importlib.import_module("ray._private.auto_init_hook")
    was, hook.enable_auto_connect = hook.enable_auto_connect, False
    try:
        yield
    finally:
        if not _stuck_threads:
            hook.enable_auto_connect = was
        for name in _ray_variables().keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)
        forget_token(ray)


def _ray_variables() -> dict[str, str]:
    return {
        name: value
        for name, value in os.environ.items()
        if name.startswith("RAY_") or name == "PYTHONBREAKPOINT"  # Ray sets that one too
    }


def forget_token(ray: Any) -> None:
    """Make Ray read mode and token again, which it caches for the life of a process."""
    ray._raylet.Config.initialize("")  # first: without it, a thread that reads a token aborts
    ray._raylet.AuthenticationTokenLoader.instance().reset_cache()


def note_stuck_thread(name: str) -> None:
    """Record that a thread is stuck in a call to Ray; Ray may have shut down when it returns."""
    _stuck_threads.append(name)


def let_go(ray: Any, end_servers: Callable[[], None] | None = None) -> None:
    """Disconnect this process, in bounded time, whatever the state of Ray's servers.

    Args:
        ray: The module.
        end_servers: Ends the servers, if they are ours: Ray waits for a stopped or stuck server.
    """
    leaving = threading.Thread(target=ray.shutdown, name="muster-ray-shutdown", daemon=True)
    leaving.start()
    leaving.join(_SHUTDOWN_SECONDS)
    if leaving.is_alive() and end_servers is not None:
        end_servers()
        leaving.join(_SHUTDOWN_SECONDS)
    if leaving.is_alive():
        atexit.register(_exit_without_ray)


@contextlib.contextmanager
def never_stuck(stuck: Callable[[], ClusterError | None]) -> Iterator[None]:
    """End the process with three lines if a call to Ray never returns within the block.

    Ray waits for its servers in C++, where no signal and no exception reaches it. Without this, it
    would also end the process, a minute later and with a line of its log.

    Args:
        stuck: Returns why the call will never return, or None; called from another thread.
    """
    over = threading.Event()

    def watch() -> None:
        while not over.wait(_LOOK_EVERY):
            if (error := stuck()) is not None and not over.is_set():
                print(f"muster: {error}", file=sys.stderr)
                _leave()

    thread = threading.Thread(target=watch, name="muster-never-stuck", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()


def _exit_without_ray() -> None:
    """End a process in which Ray is stuck: Ray would block it forever, or abort it."""
    atexit.unregister(_exit_without_ray)
    atexit.unregister(importlib.import_module("ray._private.worker").shutdown)
    atexit._run_exitfuncs()
    _leave()


def _leave() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(1)


def outlast_the_head() -> None:
    """Keep Ray from ending this process 60 s after the head is lost: `ClusterWatch` decides."""
    os.environ.setdefault("RAY_gcs_rpc_server_reconnect_timeout_s", "600")


@contextlib.contextmanager
def messages_in(directory: Path | None) -> Iterator[None]:
    """Write Ray's messages about its servers to `ray.log`, not to standard output.

    Args:
        directory: Directory of `ray.log`; None to let Ray print its messages.
    """
    if directory is None:
        yield
        return
    file = directory / "ray.log"

    def keep(data: Mapping[str, Any], ignore_prefix: bool) -> None:
        with contextlib.suppress(OSError), file.open("a") as log:
            log.writelines(f"({data.get('pid')}) {line}\n" for line in data["lines"])

    worker: Any = importlib.import_module("ray._private.worker")
    printing, worker.print_to_stdstream = worker.print_to_stdstream, keep
    try:
        yield
    finally:
        worker.print_to_stdstream = printing


@contextlib.contextmanager
def loopback() -> Iterator[None]:
    """Make Ray use 127.0.0.1 as given; on Linux it would use this machine's address instead."""
    from ray._private import ray_constants

    was = ray_constants.ENABLE_RAY_CLUSTER
    had = os.environ.get(_LOOPBACK_ENV)
    ray_constants.ENABLE_RAY_CLUSTER = False
    os.environ[_LOOPBACK_ENV] = "0"  # for the processes that Ray starts
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = was
        if had is None:
            os.environ.pop(_LOOPBACK_ENV, None)
        else:
            os.environ[_LOOPBACK_ENV] = had


def _is_not_about_sigterm(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith("SIGTERM handler is not set")


@contextlib.contextmanager
def our_signals() -> Iterator[None]:
    """Keep this process's handler of SIGTERM, which `ray.init` replaces by `sys.exit(15)`.

    A SIGTERM that arrives meanwhile is raised again afterwards. On another thread Ray replaces
    nothing, and its warning that it does not is left out.
    """
    if threading.current_thread() is not threading.main_thread():
        log = logging.getLogger("ray._private.worker")
        log.addFilter(_is_not_about_sigterm)
        try:
            yield
        finally:
            log.removeFilter(_is_not_about_sigterm)
        return
    ours = signal.getsignal(signal.SIGTERM)
    came = False
    try:
        yield
    except SystemExit as leaving:
        if leaving.code != signal.SIGTERM:
            raise
        came = True
        raise
    finally:
        if ours is not None:
            signal.signal(signal.SIGTERM, ours)
        if came:
            signal.raise_signal(signal.SIGTERM)
