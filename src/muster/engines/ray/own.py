"""A Ray cluster of our own: on this machine, for this user and one run only."""

import contextlib
import functools
import logging
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from muster.engines.local.runtime_dir import runtime_directory
from muster.engines.ray.reaper import end_all
from muster.engines.ray.servers import Servers
from muster.engines.ray.side_effects import (
    environment,
    forget_token,
    let_go,
    loopback,
    never_stuck,
    our_signals,
    outlast_the_head,
)
from muster.errors import ClusterError, MusterError, OptionError

_STORE_BYTES = 2**30
_LEAST_STORE_BYTES = 80 * 2**20
"""Ray rejects less than 75 MiB."""
_AGAIN = "the same command again, when the machine is less busy; uptime shows its load"
_RAYS = "r"
"""One letter, because a socket path has at most 107 characters; the longest ids make 105."""


@contextlib.contextmanager
def own_cluster(ray: Any, num_cpus: int | None) -> Iterator[str]:
    """Start a cluster that is reachable only by loopback and with a token, and end it.

    Raises:
        OptionError: Ray rejects the settings.
        ClusterError: The cluster did not start, twice.
    """
    with contextlib.ExitStack() as stack:
        try:
            address = stack.enter_context(_begun(ray, num_cpus))
        except ClusterError:
            # On a busy machine Ray's servers may miss Ray's own deadline.
            address = stack.enter_context(_begun(ray, num_cpus))
        yield address


@contextlib.contextmanager
def _begun(ray: Any, num_cpus: int | None) -> Iterator[str]:
    with contextlib.ExitStack() as stack:
        # In /tmp, because the paths of Ray's sockets below it may have at most 107 characters.
        short = Path("/tmp") if os.access("/tmp", os.W_OK) else None
        directory = os.path.realpath(stack.enter_context(runtime_directory(short)))
        # Ray opens its own directory to every user (0777): only its parent can stay private.
        inside = os.path.join(directory, _RAYS)
        stack.enter_context(environment(ray))
        outlast_the_head()
        _give_token(ray)
        stack.enter_context(_reaped(directory))
        stack.callback(let_go, ray, functools.partial(end_all, os.getpid(), directory))
        servers = Servers()
        with loopback(), our_signals(), servers.starting(), never_stuck(servers.stuck):
            try:
                ray.init(
                    address="local",
                    num_cpus=num_cpus,
                    include_dashboard=False,
                    log_to_driver=False,
                    logging_level=logging.WARNING,
                    object_store_memory=_store_bytes(),
                    _node_ip_address="127.0.0.1",
                    _temp_dir=inside,
                )
            except Exception as error:  # Ray raises plain Exception, too
                raise _refusal(ray, error) from error
        yield str(ray.get_runtime_context().gcs_address)


def _refusal(ray: Any, error: Exception) -> MusterError:
    """Return the error for a failed start: a ClusterError if a second attempt may succeed."""
    said = " ".join(str(error).split())
    what = "a Ray cluster on this machine could not be started"
    late = (ConnectionError, TimeoutError, RuntimeError, ray.exceptions.RayError)
    if type(error) is Exception or isinstance(error, late):
        return ClusterError(what, f"Ray says: {said:.300}", _AGAIN)
    return OptionError(
        what,
        f"Ray says: {said:.300}",
        "python -c 'import ray; ray.init(\"local\")', which shows the whole message",
    )


@contextlib.contextmanager
def _reaped(directory: str) -> Iterator[None]:
    """End all processes of a cluster with the block, and with this process if it is killed."""
    reaper = subprocess.Popen(
        [
            sys.executable,
            "-ISE",
            str(Path(__file__).with_name("reaper.py")),
            str(os.getpid()),
            directory,
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is for the driver alone
    )
    try:
        yield
    finally:
        try:
            end_all(os.getpid(), directory)
        finally:
            reaper.kill()
            reaper.wait()


def _give_token(ray: Any) -> None:
    """Give a new cluster its own token: holders of the user's token must have no access."""
    os.environ["RAY_AUTH_MODE"] = "token"  # loopback is open to every user of the machine
    os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    forget_token(ray)


def _store_bytes() -> int:
    """Return a size of the object store that fits even if there is little shared memory."""
    try:
        free = shutil.disk_usage("/dev/shm").free
    except OSError:
        return _LEAST_STORE_BYTES
    return max(_LEAST_STORE_BYTES, min(_STORE_BYTES, free // 2))
