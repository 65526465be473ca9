"""Calls of node actors that are repeated until they are answered.

On a busy network a call may be lost, and a full object store has no room for the call's data. Both
may be temporary: the call is repeated, and a node actor executes it only once.
"""

import re
import time
from collections.abc import Callable
from typing import Any

import ray

from muster.errors import ClusterError

_TRY_AGAIN_SECONDS = 0.1
_ROOM_SECONDS = 20.0
"""Maximum seconds that a call waits for room in an object store."""
_NO_ROOM = (ray.exceptions.ObjectStoreFullError, ray.exceptions.OutOfDiskError)
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def call_until_answered(
    call: Callable[[], Any],
    seconds: float | None = None,
    begun: Any = None,
    is_wanted: Callable[[], bool] = lambda: True,
) -> Any:
    """Repeat a call until it is answered; return None if it is not wanted any more.

    Args:
        call: Makes the call, and returns Ray's reference.
        seconds: Maximum wait for an answer; None for as long as the node actor lives.
        begun: The reference of a call that was already made; None to make it now.
        is_wanted: Whether to make the call, the first time and again.

    Raises:
        RayError: Ray is certain that the node actor has died; or there was no answer in time.
        ClusterError: There was no room for the call's data.
    """
    until = None if seconds is None else time.monotonic() + seconds
    room_until: float | None = None
    while is_wanted():
        try:
            left = None if until is None else max(0.0, until - time.monotonic())
            return ray.get(begun or call(), timeout=left)
        except ray.exceptions.ActorUnavailableError:
            pass
        except _NO_ROOM as error:
            room_until = room_until or time.monotonic() + _ROOM_SECONDS
            if time.monotonic() > room_until:
                raise _no_room(error) from None
        begun = None
        time.sleep(_TRY_AGAIN_SECONDS)
    return None


def start_call(call: Callable[[], Any]) -> Any:
    """Make a call; `call_until_answered` waits for its answer later. None if there was no room."""
    try:
        return call()
    except _NO_ROOM:
        return None


def first_line(error: Exception) -> str:
    """Return the first line of a Ray error, or of its cause."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, Exception):
        return f"{type(cause).__name__}: {first_line(cause)}"
    lines = [line.strip() for line in _COLOURS.sub("", str(error)).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def _no_room(error: Exception) -> ClusterError:
    has_spilled = isinstance(error, ray.exceptions.OutOfDiskError)
    disk = ", nor on the disk that it spills to" if has_spilled else ""
    return ClusterError(
        "an object store of the Ray cluster is full",
        f"messages between nodes found no room in it for {_ROOM_SECONDS:g} s{disk}",
        "ray memory, which shows who fills it; when there is room again, the same command with "
        "--resume",
    )
