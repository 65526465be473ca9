"""How a run joins a Ray cluster, and the checks before anything is started on it.

    joined(address)   Ray is already connected -> used, and left as it is
                      an address               -> queried (ask.py), then connected to
                      none                     -> a cluster of our own (own.py), ended afterwards
    check_supply      the needs of a run's nodes against the cluster's resources (supply.py)
    check_versions    a worker's versions against ours (versions.py)

Everything that makes a cluster unusable is reported here, within seconds, in three lines.
"""

import contextlib
import ipaddress
import json
import logging
import os
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from muster.engines.ray.own import own_cluster
from muster.engines.ray.side_effects import (
    environment,
    forget_token,
    let_go,
    loopback,
    never_stuck,
    our_signals,
    outlast_the_head,
)
from muster.engines.ray.supply import check_supply
from muster.engines.ray.tokens import check_token, warn_if_readable
from muster.engines.ray.versions import check_versions, my_versions, ray_here
from muster.errors import ClusterError, MusterWarning, OptionError

__all__ = [
    "About",
    "Joined",
    "check_supply",
    "check_versions",
    "joined",
    "look_at",
    "my_versions",
    "ray_here",
]

_TCP_SECONDS = 3.0
_ASK_SECONDS = 15.0
_JOIN_SECONDS = 50.0
_ENGINE = 'engine="ray"'
_warned: set[str] = set()


@dataclass(frozen=True)
class Joined:
    """The cluster that a block runs on."""

    address: str
    """HOST:PORT of its head."""
    is_own: bool
    """Whether it was started for this block, and ends with it."""


@dataclass(frozen=True)
class About:
    """What a cluster reports about itself."""

    address: str
    auth: bool
    """Whether it requires a token."""
    dashboard: str
    """HOST:PORT, or empty."""
    loopback_only: bool
    """Whether it can be reached by loopback but not by this machine's own address."""


@contextlib.contextmanager
def joined(address: str | None = None, num_cpus: int | None = None) -> Iterator[Joined]:
    """Connect this process to a Ray cluster for the duration of a block.

    If Ray is already connected, the connection is used and left as it is. Enter the block in a
    thread that outlives it: Ray's servers are bound to the thread that started them.

    Args:
        address: HOST:PORT of a cluster's head. None: that of RAY_ADDRESS, else a cluster of its own
            on this machine, which ends with the block, and soon after this process, however this
            process ends.
        num_cpus: CPUs of a cluster of its own; None for this machine's cores.

    Raises:
        OptionError: The cluster cannot be joined; the message says why.
    """
    ray = ray_here()
    if ray.is_initialized():
        present = str(ray.get_runtime_context().gcs_address)
        if address is not None and not _is_same(ray, address, present):
            raise OptionError(
                f"address={address!r} is a different Ray cluster from the one in use",
                f"this process is connected to {present} already",
                f"leave address out, or call ray.shutdown() first, to change to {address}",
            )
        yield Joined(present, is_own=False)
        return
    wanted = address or os.environ.get("RAY_ADDRESS") or "local"
    if wanted == "local":
        with own_cluster(ray, num_cpus) as at:
            yield Joined(at, is_own=True)
    else:
        about = look_at(wanted)
        _warn_if_open(about)
        if about.auth:
            warn_if_readable()
        with _connected(ray, about):
            yield Joined(about.address, is_own=False)


def look_at(address: str) -> About:
    """Query an address, which takes a second or two, without joining the cluster.

    Raises:
        OptionError: There is no cluster that this process could join.
    """
    ray = ray_here()
    host, port = _parsed(address)
    _check_listens(address, host, port)
    found = _asked(address)
    check_token(address, found)
    _check_cluster_versions(address, found)
    if not found["is_node"]:
        raise OptionError(
            f"this machine is not a node of the Ray cluster at {address}",
            "a program reaches a cluster through a node on its own machine, and this machine has "
            "none",
            f"ray start --address={address} --num-cpus=0, then the same command again",
        )
    return About(
        address=address,
        auth=found["auth"],
        dashboard=found["dashboard"],
        loopback_only=_is_loopback(host) and not _answers(ray.util.get_node_ip_address(), port),
    )


# ---- an existing cluster


def _parsed(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if "://" in address:
        raise OptionError(
            f"address={address!r} is an address of Ray Client",
            "Ray Client sends every call through a proxy, at a tenth of the speed",
            f"address='{address.partition('://')[2].rpartition(':')[0] or 'HOST'}:6379', the port "
            "of ray start --head, on a machine of the cluster",
        )
    if not colon or not host or not port.isdigit() or not 0 < int(port) < 2**16:
        raise OptionError(
            f"address={address!r:.200} is not an address of a Ray cluster",
            "it must be HOST:PORT of the cluster's head, as ray start --head prints it",
            "address='127.0.0.1:6379'",
        )
    return host.strip("[]"), int(port)


def _check_listens(address: str, host: str, port: int) -> None:
    try:
        socket.create_connection((host, port), _TCP_SECONDS).close()
    except socket.gaierror:
        why = f"the host name cannot be resolved: {host}"
    except TimeoutError:
        why = f"nothing answered in {_TCP_SECONDS:g} s: the machine is off, or behind a firewall"
    except OSError as error:
        why = f"nothing listens there ({error.strerror or error})"
    else:
        return
    raise OptionError(
        f"no Ray cluster at {address}",
        why,
        f"ray start --head --port={port} on {host}, or the address that ray status names",
    )


def _asked(address: str) -> dict[str, Any]:
    """Run the query in a separate process, and return its answer."""
    asking = Path(__file__).with_name("ask.py")
    try:
        done = subprocess.run(
            [sys.executable, "-P", str(asking), address],
            capture_output=True,
            text=True,
            timeout=_ASK_SECONDS,
        )
        said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return said
    except subprocess.TimeoutExpired:
        what = f"in {_ASK_SECONDS:g} s it sent no answer that Ray understands"
    except (ValueError, IndexError):
        what = f"it answered: {(done.stderr.strip().splitlines() or ['nothing'])[-1]:.200}"
    raise OptionError(
        f"the service at {address} is not a Ray cluster that this program can join",
        what,
        "the address that ray start --head printed; ray status shows whether the cluster works",
    )


def _check_cluster_versions(address: str, found: Mapping[str, Any]) -> None:
    """Raise OptionError for versions that Ray would reject when connecting."""
    mine = my_versions()
    theirs = {**mine, **{name: found[name] for name in ("ray", "python") if found[name]}}
    if os.environ.get("RAY_DEFAULT_PYTHON_VERSION_MATCH_LEVEL") == "minor":
        mine["python"], theirs["python"] = (
            ".".join(each["python"].split(".")[:2]) for each in (mine, theirs)
        )
    check_versions(theirs, f"the Ray cluster at {address}", mine)


def _warn_if_open(about: About) -> None:
    host, _, port = about.dashboard.rpartition(":")
    if about.auth or not host or _is_loopback(host) or about.address in _warned:
        return
    if not _answers(host, int(port)):
        return
    _warned.add(about.address)
    warnings.warn(
        f"the Ray cluster at {about.address} asks for no token, and its dashboard is open at "
        f"{about.dashboard}: whoever reaches that address can run programs on the cluster as you.\n"
        "  try: on its head, ray stop; (umask 077; ray get-auth-token --generate); "
        "RAY_AUTH_MODE=token ray start --head --dashboard-host=127.0.0.1; the same token on every "
        "node",
        MusterWarning,
        stacklevel=5,
    )


@contextlib.contextmanager
def _connected(ray: Any, about: About) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        stack.enter_context(environment(ray))
        if about.auth:
            os.environ["RAY_AUTH_MODE"] = "token"  # by default Ray does not send the token
        outlast_the_head()
        forget_token(ray)
        stack.callback(let_go, ray)
        what = f"the Ray cluster at {about.address} could not be joined"
        fix = "ray status, with the same RAY_AUTH_TOKEN, on this machine"
        late = ClusterError(what, f"it did not answer for {_JOIN_SECONDS:g} s", fix)
        until = time.monotonic() + _JOIN_SECONDS
        stuck = never_stuck(lambda: late if time.monotonic() > until else None)
        here = loopback() if about.loopback_only else contextlib.nullcontext()
        with here, our_signals(), stuck:
            try:
                ray.init(address=about.address, log_to_driver=False, logging_level=logging.WARNING)
            except Exception as error:  # Ray raises plain Exception, too
                raise OptionError(what, f"Ray says: {error!s:.300}", fix) from error
        yield


# ---- addresses


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _answers(host: str, port: int) -> bool:
    try:
        socket.create_connection((host.strip("[]"), port), 1.0).close()
    except OSError:
        return False
    return True


def _is_same(ray: Any, address: str, present: str) -> bool:
    """Whether two addresses are of one cluster; this machine has several names."""
    host, port = _parsed(address)
    other, other_port = _parsed(present)
    return port == other_port and bool(_addresses(ray, host) & _addresses(ray, other))


def _addresses(ray: Any, host: str) -> set[str]:
    try:
        found = {str(info[4][0]) for info in socket.getaddrinfo(host, None)}
    except OSError:
        return {host}
    here = {"127.0.0.1", "::1", ray.util.get_node_ip_address()}
    return found | here if found & here else found
