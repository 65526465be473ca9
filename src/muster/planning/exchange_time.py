"""Measures what it costs two processes of this machine to meet and to send a message."""

import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

_MEETINGS, _MESSAGES = 1_000, 200
_MOST_S = 60.0
"""Seconds after which a message is lost for certain."""


class ExchangeTime(NamedTuple):
    """Seconds of each."""

    barrier_s: float
    """Until two workers know that both have arrived."""
    message_s: float
    """Of one side, to send or receive a small message."""


GUESS = ExchangeTime(20e-6, 100e-6)
"""For a calibration that measures nothing now: the order of magnitude on a server."""


def measure_exchange() -> ExchangeTime:
    """Start two nodes, and let them meet and send each other messages."""
    from muster.framework import Parallel

    found: list[ExchangeTime] = Parallel.runner(2, topology="mesh", threads=1, quiet=True)(_main)
    return found[0]


def _main() -> ExchangeTime:
    """Run on both nodes."""
    from muster.flow import Channel, Team
    from muster.framework import Task

    team = Team({"row": ((2, 8), "f8")})
    with Task() as task:
        node = task.router.node_id
        there, back = Channel("there", home=0, capacity=4), Channel("back", home=1, capacity=4)
        found = GUESS

        def _measure(ctx: object) -> None:
            nonlocal found
            barrier = _median(team.meet, _MEETINGS)
            mine, theirs = (there, back) if node == 0 else (back, there)

            def round_trip() -> None:
                if node == 1:
                    theirs.put(0)
                mine.get(timeout=_MOST_S)
                if node == 0:
                    theirs.put(0)

            # A round trip has two messages, each with a sender and a receiver.
            found = ExchangeTime(barrier, _median(round_trip, _MESSAGES) / 4)
            team.meet()

        task.use(_measure)
        task.run(max_step=1)
    return found


def _median(call: Callable[[], object], count: int) -> float:
    """Return the median seconds of a call: other programs lengthen the mean."""
    taken = []
    for _ in range(count):
        started = time.perf_counter()
        call()
        taken.append(time.perf_counter() - started)
    return statistics.median(taken)
