"""Ray itself: imported when needed, joined or started, and asked whether there is room."""

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
        MissingRayError: It is not there; the message has the command that installs it.
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
    """Be connected to a Ray cluster inside the block, and get the module `ray`.

    One that this process is connected to already is used, and left as it was. One that is started
    here is private to this process, and gone afterwards with all its processes and files.

    Args:
        address: HOST:PORT of a running cluster. None: that of RAY_ADDRESS, or start one here.
        num_cpus: How many a cluster that is started here has: tickets that actors need to be
            placed, not cores. None: as many as the machine has cores.
    """
    ray = need_ray()
    from muster.engines.ray.cluster import joined

    with joined(address, num_cpus):
        yield ray


def check_room(needs: Mapping[str, Mapping[str, float]]) -> None:
    """Refuse what the cluster does not have, at once, or what others hold, after some seconds.

    Args:
        needs: By the name of a block, its options: `num_cpus`, `num_gpus`, `memory`, or a resource
            of your own.

    Raises:
        OptionError: Names what is needed and what there is.
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
    """Return what an actor with these options of Ray's needs to be placed."""
    needs: dict[str, float] = dict(options.get("resources") or {})
    for option in ("num_cpus", "num_gpus", "memory"):
        if options.get(option):
            needs[option] = options[option]
    return needs
