"""What Ray does to a process that joins a cluster, and how it is undone or kept away.

Every block here leaves the process as it found it.
"""

import contextlib
import functools
import importlib
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

_LOOPBACK_ENV = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"


@contextlib.contextmanager
def environment(ray: Any) -> Iterator[None]:
    """Put Ray's variables back to what they are, and have Ray forget what they were meanwhile."""
    before = _ray_variables()
    try:
        yield
    finally:
        for name in _ray_variables().keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)
        forget_token(ray)


def _ray_variables() -> dict[str, str]:
    return {
        name: value
        for name, value in os.environ.items()
        if name.startswith("RAY_") or name == "PYTHONBREAKPOINT"  # which Ray sets, too
    }


def forget_token(ray: Any) -> None:
    """Have Ray read mode and token anew; it keeps both for the life of a process."""
    ray._raylet.Config.initialize("")  # first: a thread that still reads a token aborts without
    ray._raylet.AuthenticationTokenLoader.instance().reset_cache()


@contextlib.contextmanager
def loopback() -> Iterator[None]:
    """Have Ray take 127.0.0.1 for what it is; on Linux it would take this machine's address."""
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


@contextlib.contextmanager
def groups_of_their_own() -> Iterator[None]:
    """Have Ray's servers be in process groups of their own: a signal to ours is for us to obey."""
    services: Any = importlib.import_module("ray._private.services")
    popen = services.ConsolePopen
    services.ConsolePopen = functools.partial(popen, process_group=0)
    try:
        yield
    finally:
        services.ConsolePopen = popen


@contextlib.contextmanager
def our_signals() -> Iterator[None]:
    """Keep this process's handler of SIGTERM, which `ray.init` replaces by `sys.exit(15)`.

    A SIGTERM that came meanwhile is given to it afterwards.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
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
