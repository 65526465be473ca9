"""Pending calls of actors: each is fetched, and an exception raised there is raised here.

finish(calls, watch=others) -> all results, or the first failure of any of them, at once
"""

import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from muster.actors.errors import BlockError
from muster.actors.ray_here import need_ray
from muster.errors import MusterError

_COLOUR = re.compile(r"\x1b\[\d+m")
_OWN_CODE = "its own code, or its arguments"

START_WITHIN = 120.0
"""Seconds within which an actor has to be placed and constructed."""


@dataclass(frozen=True)
class Call:
    """A running method of an actor."""

    block: str
    """The name of the block, for messages."""
    ref: Any
    """Ray's reference to the result."""
    started: Any = None
    """Ray's reference that is ready when the actor has started."""

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the result.

        Raises:
            BlockError: The actor raised or died.
            TimeoutError: The result did not arrive in time.
        """
        ray = need_ray()
        try:
            return ray.get(self.ref, timeout=timeout)
        except ray.exceptions.GetTimeoutError:
            raise TimeoutError(f"{self.block} did not finish within {timeout} s") from None
        except ray.exceptions.RayError as error:
            raise failure(self.block, error) from error.__cause__


def failure(block: str, error: Any) -> BlockError:
    """Return the exception to raise for an exception of Ray that came from an actor."""
    cause = getattr(error, "cause", None)
    if cause is None:
        lines = str(error).strip().splitlines()
        return BlockError(
            f"{block} has ended",
            lines[0] if lines else type(error).__name__,
            "look at the machine's memory, and at Ray's logs",
            block=block,
        )
    what, why, fix = (
        cause.args
        if isinstance(cause, MusterError)
        else (str(cause).strip() or "no message", _OWN_CODE, "read the remote traceback")
    )
    return BlockError(
        f"{block} raised {type(cause).__name__}: {what}",
        why,
        fix,
        block=block,
        remote_traceback=_COLOUR.sub("", str(error)),
    )


def finish(
    calls: Iterable[Call],
    watch: Iterable[Call] = (),
    timeout: float | None = None,
    start_within: float = START_WITHIN,
) -> list[Any]:
    """Wait for all calls and return their results in order.

    Args:
        calls: The calls to wait for.
        watch: Other calls, which are not waited for; but if one of them fails, the wait ends.
        timeout: Maximum number of seconds.
        start_within: Seconds within which every actor has to be placed and constructed.

    Raises:
        BlockError: One of `calls` or `watch` failed; raised as soon as that is known.
        TimeoutError: They were not done in time.
    """
    wanted = list(calls)
    everyone = wanted + list(watch)
    began = time.monotonic()
    _await_start(everyone, start_within)
    ray = need_ray()
    done: dict[Any, Any] = {}
    open_calls = {call.ref: call for call in everyone}
    missing = {call.ref for call in wanted}
    while missing:
        rest = None if timeout is None else timeout - (time.monotonic() - began)
        if rest is not None and rest <= 0:
            names = sorted({open_calls[ref].block for ref in missing})
            raise TimeoutError(f"not finished within {timeout} s: {', '.join(names)}")
        ready, _ = ray.wait(list(open_calls), num_returns=1, timeout=rest)
        for ref in ready:
            done[ref] = open_calls.pop(ref).result()
            missing.discard(ref)
    return [done[call.ref] for call in wanted]


def _await_start(calls: Sequence[Call], seconds: float) -> None:
    """Wait until the actors have started; raise BlockError for those that could not be placed."""
    ray = need_ray()
    starting = {call.started: call for call in calls if call.started is not None}
    if not starting:
        return
    ready, late = ray.wait(list(starting), num_returns=len(starting), timeout=seconds)
    for ref in ready:
        Call(starting[ref].block, ref).result()
    if late:
        names = sorted({starting[ref].block for ref in late})
        free = {k: v for k, v in ray.available_resources().items() if k in ("CPU", "GPU")}
        raise BlockError(
            f"{', '.join(names)} did not start within {seconds:g} s",
            f"the cluster has {free} left, and other programs may hold the rest",
            "fewer workers, or a cluster with more CPUs",
            block=names[0],
        )
