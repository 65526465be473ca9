"""Compares the versions on the machines of a cluster with those of this process."""

import importlib.util
import platform
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from muster.errors import OptionError
from muster.installs import install
from muster.version import __version__

_ENGINE = 'engine="ray"'
_ANSWER_SECONDS = 20.0


def ray_here() -> Any:
    """Return the module `ray`.

    Raises:
        OptionError: It is not installed.
    """
    check_installed()
    try:
        import ray
    except ImportError as error:
        raise _absent(f"it cannot be imported: {error}") from None
    return ray


def check_installed() -> None:
    """Raise OptionError if Ray is not installed. Does not load it, which takes a second."""
    if sys.modules.get("ray") is None and importlib.util.find_spec("ray") is None:
        raise _absent("it is not installed")


def _absent(why: str) -> OptionError:
    return OptionError(f"{_ENGINE} needs Ray", why, install("ray"))


def check_versions(
    theirs: Mapping[str, str], where: str = "a worker", mine: Mapping[str, str] | None = None
) -> None:
    """Raise OptionError if a worker's versions differ from the driver's.

    Args:
        theirs: Versions of `muster`, `python` and `ray`, as the worker reports them.
        where: Name of the worker in the message.
        mine: The driver's versions; None for those of this process.

    Raises:
        OptionError: The message names both.
    """
    mine = my_versions() if mine is None else mine
    other = [name for name in mine if mine[name] != theirs.get(name)]
    if not other:
        return
    if not theirs.get("muster"):
        raise OptionError(
            f"{where} has no muster",
            "nodes of this program will run there, and need muster",
            f"{_install(mine, other)} there, in the Python that runs Ray",
        )
    have = ", ".join(f"{name} {theirs.get(name) or '(none)'}" for name in other)
    want = ", ".join(f"{name} {mine[name]}" for name in other)
    raise OptionError(
        f"{where} has {have}; the program that started it has {want}",
        "nodes understand each other only if their versions are equal",
        f"{_install(mine, other)} on every machine of the cluster",
    )


def my_versions() -> dict[str, str]:
    """Return the versions with which a worker's versions are compared."""
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


def check_machines(ray: Any) -> None:
    """Raise OptionError for the first machine of the joined cluster that has other versions.

    A task that does not need muster asks each machine; a machine that does not answer is skipped.

    Raises:
        OptionError: The message names the machine, both versions, and how to make them equal.
    """
    strategy = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
    ask = ray.remote(num_cpus=0, max_retries=0)(asker())
    asked = {
        node["NodeManagerAddress"]: ask.options(
            scheduling_strategy=strategy(node["NodeID"], soft=False)
        ).remote()
        for node in ray.nodes()
        if node["Alive"]
    }
    until = time.monotonic() + _ANSWER_SECONDS
    for address, answer in sorted(asked.items()):
        try:
            theirs = ray.get(answer, timeout=max(0.0, until - time.monotonic()))
        except ray.exceptions.RayError:
            continue
        check_versions(theirs, f"the machine {address}")


def asker() -> Callable[[], dict[str, Any]]:
    """Return the task for nodes: a nested function, pickled by value, as muster may be missing."""

    def report_versions() -> dict[str, Any]:
        import importlib
        import importlib.metadata
        import platform
        import shutil

        found: dict[str, Any] = {"python": platform.python_version()}
        for name in ("ray", "torch"):
            try:
                found[name] = importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                found[name] = None
        try:
            found["muster"] = importlib.import_module("muster.version").__version__
        except ImportError:
            found["muster"] = None
        try:
            found["shared_memory"] = shutil.disk_usage("/dev/shm").total
        except OSError:
            found["shared_memory"] = None
        return found

    return report_versions
