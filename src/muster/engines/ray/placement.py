"""`reserve`: a placement group for the nodes of a run, requested again when Ray gets stuck.

Ray 2.60 does not survive the loss of one call while it places a group:

    lost call            what Ray does then                            remedy
    commit               retries the same group forever                a new group
    prepare              the head counts the resources as taken        machines report theirs again
    answer to a prepare  the machine holds them for no one, forever    release.py, or else a new
                                                                       cluster (engine.py)
"""

import contextlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

import ray
from ray.util.placement_group import (
    placement_group,
    placement_group_table,
    remove_placement_group,
)
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from muster.engines.ray.release import release
from muster.engines.ray.supply import patience
from muster.errors import ClusterError, MusterError, OptionError

_ray: Any = ray  # its type hints lack `nodes`
_FIRST_SECONDS = 5.0
"""Seconds before a group is requested again; doubled each time. Ray needs milliseconds."""
_OWN_SECONDS = 3 * _FIRST_SECONDS
"""Total, on a cluster of our own: no one else can have its resources."""
_JOINED_SECONDS = 7 * _FIRST_SECONDS
"""Total, on a cluster that others use too: `check_supply` has just seen that there is room."""
_LOOK_EVERY = 1.0
_REPORT_SECONDS = 5.0
_LITTLE = 0.001


class NotPlacedError(ClusterError):
    """A cluster of our own does not place the nodes of the run for which it was started."""


def reserve(bundles: Sequence[Mapping[str, float]], seconds: float, is_own: bool) -> Any:
    """Return a placement group that Ray has placed.

    Args:
        bundles: The resources of each node.
        seconds: Maximum time to try.
        is_own: Whether the cluster was started for this run.

    Raises:
        NotPlacedError: A cluster of our own did not place the group.
        OptionError: The resources did not become free in time.
    """
    limit = _OWN_SECONDS if is_own else max(_JOINED_SECONDS, patience() or 0.0)
    seconds = min(seconds, limit)
    until = time.monotonic() + seconds
    attempt_seconds = _FIRST_SECONDS
    removed = []
    while True:
        group = placement_group([dict(bundle) for bundle in bundles], strategy="PACK")
        if _is_placed(group, min(until, time.monotonic() + attempt_seconds)):
            return group
        remove_placement_group(group)
        removed.append(group)
        # All of them, each time: a call for an earlier group may have arrived late.
        release(removed, bundles)
        if time.monotonic() >= until:
            raise _not_placed(len(bundles), seconds, is_own)
        _refresh_resources()
        attempt_seconds *= 2


def _is_placed(group: Any, until: float) -> bool:
    """Wait for Ray to place a group; False at the deadline, or if Ray is stuck with it."""
    while (left := until - time.monotonic()) > 0:
        if group.wait(min(left, _LOOK_EVERY)):
            return True
        if placement_group_table(group).get("state") == "RESCHEDULING":
            return False
    return False


def _refresh_resources() -> None:
    """Make every machine report its free resources to the head, which may count them wrongly.

    A machine reports when something changes: here, a task that needs almost no resources.
    """
    report = ray.remote(num_cpus=_LITTLE, max_retries=0)(_nothing())
    asked = [
        report.options(
            scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        ).remote()
        for node in _ray.nodes()
        if node["Alive"] and node["Resources"].get("CPU", 0.0) >= _LITTLE
    ]
    _, late = ray.wait(asked, num_returns=len(asked), timeout=_REPORT_SECONDS)
    for each in late:  # no resources are free
        with contextlib.suppress(ray.exceptions.RayError):
            ray.cancel(each)


def _nothing() -> Any:
    """Return a nested function: it is pickled by value, as the machine may lack muster."""

    def report_resources() -> None:
        pass

    return report_resources


def _not_placed(nodes: int, seconds: float, is_own: bool) -> MusterError:
    if is_own:
        return NotPlacedError(
            f"the Ray cluster of this run did not place its {nodes} nodes",
            f"it has room for them, and did not reserve it in {seconds:g} s",
            "the same command again",
        )
    return OptionError(
        f"there is no room for {nodes} nodes",
        "other programs use the room, or Ray still reserves it after a lost call; it was not free "
        f"after {seconds:g} s",
        "ray status, which shows who uses what; ray stop and ray start free what no program uses",
    )
