"""Ray itself: imported when needed, joined or started, and asked for free resources."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from muster.errors import MusterError, OptionError
from muster.installs import install


class MissingRayError(MusterError, ImportError):
    """Ray is not installed."""


def need_ray() -> Any:
    """Import Ray and return it.

    Raises:
        MissingRayError: Ray is not installed; the message has the command that installs it.
    """
    try:
        import ray
    except ImportError as error:
        raise MissingRayError(
            "the building blocks of muster.actors need Ray",
            f"it cannot be imported: {error}",
            install("ray"),
        ) from None
    return ray


@contextmanager
def cluster(address: str | None = None, num_cpus: int | None = None) -> Iterator[Any]:
    """Connect to a Ray cluster within the block, and yield the module `ray`.

    An existing connection of this process is used, and stays as it was. A cluster that is started
    here is private to this process, and ends with the block, including its processes and files.

    Args:
        address: HOST:PORT of a running cluster. None: that of RAY_ADDRESS, or start one here.
        num_cpus: CPUs of a cluster that is started here: tickets that actors need to be placed, not
            cores. None: as many as the machine has cores.
    """
    ray = need_ray()
    from muster.engines.ray.cluster import joined

    with joined(address, num_cpus):
        yield ray


def check_room(needs: Mapping[str, Mapping[str, float]]) -> None:
    """Raise if the cluster lacks resources: at once, or after some seconds if others hold them.

    Args:
        needs: Block name -> its options: `num_cpus`, `num_gpus`, `memory`, or your own resource.

    Raises:
        OptionError: Names the needed and the available resources.
    """
    from muster.engines.ray.cluster import check_supply

    wanted = {name: each for name, each in needs.items() if any(each.values())}
    if not wanted:
        return
    need_ray()
    try:
        check_supply(wanted)
    except OptionError as error:
        what, why, _ = error.args
        fix = "ask for less of it (num_cpus=0.5, num_gpus=0), fewer blocks, or a larger cluster"
        raise OptionError(what.replace(" nodes need ", " blocks need "), why, fix) from None


def needs_of(options: Mapping[str, Any]) -> dict[str, float]:
    """Return the resources that an actor with these Ray options needs to be placed."""
    needs: dict[str, float] = dict(options.get("resources") or {})
    for option in ("num_cpus", "num_gpus", "memory"):
        if options.get(option):
            needs[option] = options[option]
    return needs
