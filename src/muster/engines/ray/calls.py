"""Calls of keepers that are made until they are heard: on a busy network a call may get lost."""

import time
from collections.abc import Callable
from typing import Any

import ray

TRY_AGAIN_SECONDS = 0.1


def heard(call: Callable[[], Any], seconds: float | None = None, begun: Any = None) -> Any:
    """Return the answer to a call, which may be made again: its keeper does things once.

    Args:
        call: Makes it, and returns Ray's reference.
        seconds: How long to wait for an answer; None for as long as the keeper lives.
        begun: The reference of a call that was made already; None to make it now.

    Raises:
        RayError: The keeper is gone, as Ray knows for sure; or there was no answer in time.
    """
    until = None if seconds is None else time.monotonic() + seconds
    while True:
        try:
            left = None if until is None else max(0.0, until - time.monotonic())
            return ray.get(begun or call(), timeout=left)
        except ray.exceptions.ActorUnavailableError:
            begun = None
            time.sleep(TRY_AGAIN_SECONDS)
