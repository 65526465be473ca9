"""How a run joins a Ray cluster, and what it asks of one before anything is started on it.

    joined(address)   Ray is there already -> used, and left as it is
                      an address           -> asked what it is (ask.py), then connected to
                      none                 -> a cluster of our own, on loopback, gone afterwards
    check_supply      what the nodes of a run need, against what the cluster has (supply.py)
    check_versions    a worker's versions, against ours

Everything that makes a cluster useless is refused here, within seconds, in three lines.
"""

import contextlib
import functools
import importlib
import ipaddress
import json
import logging
import os
import platform
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from muster.engines.local.runtime_dir import runtime_directory
from muster.engines.ray.reaper import end_all
from muster.engines.ray.supply import check_supply
from muster.errors import MusterWarning, OptionError
from muster.version import __version__

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
_STORE_BYTES = 2**30
_LEAST_STORE_BYTES = 80 * 2**20
"""Ray refuses less than 75 MiB."""
_ENGINE = 'engine="ray"'
_LOOPBACK_ENV = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
_warned: set[str] = set()


@dataclass(frozen=True)
class Joined:
    """The cluster that a block runs on."""

    address: str
    """Of its head: HOST:PORT."""
    is_own: bool
    """Whether it was started for this block, and ends with it."""


@dataclass(frozen=True)
class About:
    """What a cluster said of itself."""

    address: str
    auth: bool
    """Whether it wants a token."""
    dashboard: str
    """HOST:PORT, or nothing."""
    loopback_only: bool
    """Whether it can be reached by loopback and not by this machine's own address."""


def ray_here() -> Any:
    """Return the module `ray`.

    Raises:
        OptionError: It is not installed.
    """
    try:
        import ray
    except ImportError:
        raise OptionError(
            f"{_ENGINE} needs Ray", "it is not installed", "pip install 'muster-rl[ray]'"
        ) from None
    return ray


@contextlib.contextmanager
def joined(address: str | None = None, num_cpus: int | None = None) -> Iterator[Joined]:
    """Connect this process to a Ray cluster for the length of a block.

    Where Ray is connected already, it is used and left alone. Enter it in a thread that outlives
    the block: Ray's servers are bound to the thread that started them.

    Args:
        address: HOST:PORT of a cluster's head. None: the one of RAY_ADDRESS, else a cluster of its
            own on this machine, that ends with the block, and soon after this process whatever
            ends it.
        num_cpus: Of a cluster of its own; None for the cores there are.

    Raises:
        OptionError: It cannot be joined, and why.
    """
    ray = ray_here()
    if ray.is_initialized():
        present = str(ray.get_runtime_context().gcs_address)
        if address is not None and not _is_same(ray, address, present):
            raise OptionError(
                f"address={address!r} is another Ray cluster than the one that is joined",
                f"this process is connected to {present} already",
                f"leave address away, or ray.shutdown() before, to change to {address}",
            )
        yield Joined(present, is_own=False)
        return
    wanted = address or os.environ.get("RAY_ADDRESS") or "local"
    if wanted == "local":
        with _own(ray, num_cpus) as at:
            yield Joined(at, is_own=True)
    else:
        about = look_at(wanted)
        _warn_if_open(about)
        with _connected(ray, about):
            yield Joined(about.address, is_own=False)


def look_at(address: str) -> About:
    """Ask what is at an address; takes a second or two. Nothing is joined.

    Raises:
        OptionError: There is no cluster, or none that this process could join.
    """
    ray = ray_here()
    host, port = _parsed(address)
    _check_listens(address, host, port)
    found = _asked(address)
    _check_token(address, found)
    _check_cluster_versions(address, found)
    if not found["is_node"]:
        raise OptionError(
            f"this machine is no node of the Ray cluster at {address}",
            "a program reaches a cluster through a node on its own machine, and none is here",
            f"ray start --address={address} --num-cpus=0, then the same again",
        )
    return About(
        address=address,
        auth=found["auth"],
        dashboard=found["dashboard"],
        loopback_only=_is_loopback(host) and not _answers(ray.util.get_node_ip_address(), port),
    )


def check_versions(
    theirs: Mapping[str, str], where: str = "a worker", mine: Mapping[str, str] | None = None
) -> None:
    """Refuse a worker with other versions than the driver.

    Args:
        theirs: Of `muster`, `python` and `ray`, as the worker reports them.
        where: What the worker is called.
        mine: The driver's; None for those of this process.

    Raises:
        OptionError: Naming both.
    """
    mine = my_versions() if mine is None else mine
    other = [name for name in mine if mine[name] != theirs.get(name)]
    if not other:
        return
    have = ", ".join(f"{name} {theirs.get(name) or '(none)'}" for name in other)
    want = ", ".join(f"{name} {mine[name]}" for name in other)
    raise OptionError(
        f"{where} has {have}; the program that started it has {want}",
        "what nodes send each other is only understood between equal versions",
        f"{_install(mine, other)} on every machine of the cluster",
    )


def my_versions() -> dict[str, str]:
    """Return what a worker's versions are compared with."""
    return {
        "muster": __version__,
        "python": platform.python_version(),
        "ray": str(ray_here().__version__),
    }


def _install(versions: Mapping[str, str], names: list[str]) -> str:
    packages = {"muster": "muster-rl", "ray": "ray"}
    wanted = [f"{packages.get(name, name)}=={versions[name]}" for name in names if name != "python"]
    parts = [f"Python {versions['python']}"] if "python" in names else []
    return " and ".join([*parts, *([f"pip install {' '.join(wanted)}"] if wanted else [])])


# ---- a cluster that is there


def _parsed(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if "://" in address:
        raise OptionError(
            f"address={address!r} is one of Ray Client",
            "it sends every call through a proxy, at a tenth of the speed",
            f"address='{address.partition('://')[2].rpartition(':')[0] or 'HOST'}:6379', the port "
            "of ray start --head, on a machine of the cluster",
        )
    if not colon or not host or not port.isdigit() or not 0 < int(port) < 2**16:
        raise OptionError(
            f"address={address!r:.200} is no address of a Ray cluster",
            "it is HOST:PORT of its head, as ray start --head prints it",
            "address='127.0.0.1:6379'",
        )
    return host.strip("[]"), int(port)


def _check_listens(address: str, host: str, port: int) -> None:
    try:
        socket.create_connection((host, port), _TCP_SECONDS).close()
    except socket.gaierror:
        why = f"no machine is known by the name {host}"
    except TimeoutError:
        why = f"nothing answered in {_TCP_SECONDS:g} s: the machine is off, or a firewall between"
    except OSError as error:
        why = f"nobody listens there ({error.strerror or error})"
    else:
        return
    raise OptionError(
        f"no Ray cluster at {address}",
        why,
        f"ray start --head --port={port} on {host}, or the address that ray status names",
    )


def _asked(address: str) -> dict[str, Any]:
    """Return what a process of its own was told there."""
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
        what = f"in {_ASK_SECONDS:g} s it gave no answer that Ray understands"
    except (ValueError, IndexError):
        what = f"asked, it said: {(done.stderr.strip().splitlines() or ['nothing'])[-1]:.200}"
    raise OptionError(
        f"what listens at {address} is no Ray cluster that can be joined",
        what,
        "the address that ray start --head printed; with ray status it is seen whether it is well",
    )


def _check_token(address: str, found: Mapping[str, Any]) -> None:
    mode = os.environ.get("RAY_AUTH_MODE", "").lower()
    if found["token"] == "none" and (found["auth"] or mode == "token"):
        whose = f"the Ray cluster at {address} wants" if found["auth"] else "RAY_AUTH_MODE wants"
        raise OptionError(
            f"{whose} a token, and there is none",
            "neither RAY_AUTH_TOKEN nor RAY_AUTH_TOKEN_PATH is set, and no file ~/.ray/auth_token",
            "export RAY_AUTH_TOKEN=... with what ray get-auth-token prints on the cluster's head",
        )
    if found["token"] == "wrong":
        source = next(
            (name for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH") if os.environ.get(name)),
            "the file ~/.ray/auth_token",
        )
        raise OptionError(
            f"the Ray cluster at {address} refuses our token",
            f"the one from {source} is not the cluster's",
            "export RAY_AUTH_TOKEN=... with what ray get-auth-token prints on the cluster's head",
        )
    if found["auth"] and mode not in ("", "token"):
        raise OptionError(
            f"the Ray cluster at {address} wants a token, which RAY_AUTH_MODE={mode} keeps back",
            "Ray sends its token only in the mode token",
            "export RAY_AUTH_MODE=token",
        )


def _check_cluster_versions(address: str, found: Mapping[str, Any]) -> None:
    """Refuse what Ray would refuse when connecting."""
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
        "  try: on its head, ray stop; ray get-auth-token --generate; RAY_AUTH_MODE=token "
        "ray start --head --dashboard-host=127.0.0.1; the same token on every node",
        MusterWarning,
        stacklevel=5,
    )


@contextlib.contextmanager
def _connected(ray: Any, about: About) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        stack.enter_context(_environment(ray))
        if about.auth:
            os.environ["RAY_AUTH_MODE"] = "token"  # by itself, Ray keeps the token to itself
        _forget_token(ray)
        stack.callback(ray.shutdown)
        with _loopback() if about.loopback_only else contextlib.nullcontext(), _our_signals():
            try:
                ray.init(address=about.address, log_to_driver=False, logging_level=logging.WARNING)
            except (ray.exceptions.RayError, OSError, RuntimeError, ValueError) as error:
                raise OptionError(
                    f"the Ray cluster at {about.address} could not be joined",
                    f"Ray says: {error}",
                    "ray status, with the same RAY_AUTH_TOKEN, on this machine",
                ) from error
        yield


# ---- a cluster of our own


@contextlib.contextmanager
def _own(ray: Any, num_cpus: int | None) -> Iterator[str]:
    """Start a cluster that is reached by loopback and with a token only, and end it."""
    with contextlib.ExitStack() as stack:
        # In /tmp, because the paths of Ray's sockets below may have 107 characters in all.
        short = Path("/tmp") if os.access("/tmp", os.W_OK) else None
        directory = os.path.realpath(stack.enter_context(runtime_directory(short)))
        stack.enter_context(_environment(ray))
        _give_token(ray)
        stack.enter_context(_reaped(directory))
        stack.callback(ray.shutdown)
        with _loopback(), _our_signals(), _groups_of_their_own():
            try:
                ray.init(
                    address="local",
                    num_cpus=num_cpus,
                    include_dashboard=False,
                    log_to_driver=False,
                    logging_level=logging.WARNING,
                    object_store_memory=_store_bytes(),
                    _node_ip_address="127.0.0.1",
                    _temp_dir=directory,
                )
            except (ray.exceptions.RayError, OSError, RuntimeError, ValueError) as error:
                raise OptionError(
                    "a Ray cluster on this machine could not be started",
                    f"Ray says: {error}",
                    "python -c 'import ray; ray.init(\"local\")', which shows more of it",
                ) from error
        yield str(ray.get_runtime_context().gcs_address)


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
    """Turn authentication on for a new cluster, with a token of its own if the user has none."""
    os.environ.setdefault("RAY_AUTH_MODE", "token")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    _forget_token(ray)
    loader = ray._raylet.AuthenticationTokenLoader.instance()
    if not loader.has_token(ignore_auth_mode=True):
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
        _forget_token(ray)


def _store_bytes() -> int:
    """Return a size of the object store that fits even where there is little shared memory."""
    try:
        free = shutil.disk_usage("/dev/shm").free
    except OSError:
        return _LEAST_STORE_BYTES
    return max(_LEAST_STORE_BYTES, min(_STORE_BYTES, free // 2))


# ---- what Ray does to a process that it is to leave as it was


@contextlib.contextmanager
def _environment(ray: Any) -> Iterator[None]:
    """Put Ray's variables back to what they are, and have Ray forget what they were meanwhile."""
    before = _ray_variables()
    try:
        yield
    finally:
        for name in _ray_variables().keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)
        _forget_token(ray)


def _ray_variables() -> dict[str, str]:
    return {
        name: value
        for name, value in os.environ.items()
        if name.startswith("RAY_") or name == "PYTHONBREAKPOINT"  # which Ray sets, too
    }


def _forget_token(ray: Any) -> None:
    """Have Ray read mode and token anew; it keeps both for the life of a process."""
    ray._raylet.Config.initialize("")  # first: a thread that still reads a token aborts without
    ray._raylet.AuthenticationTokenLoader.instance().reset_cache()


@contextlib.contextmanager
def _loopback() -> Iterator[None]:
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
def _groups_of_their_own() -> Iterator[None]:
    """Have Ray's servers be in process groups of their own: a signal to ours is for us to obey."""
    services: Any = importlib.import_module("ray._private.services")
    popen = services.ConsolePopen
    services.ConsolePopen = functools.partial(popen, process_group=0)
    try:
        yield
    finally:
        services.ConsolePopen = popen


@contextlib.contextmanager
def _our_signals() -> Iterator[None]:
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
