"""Measures what it costs two processes of this machine to meet and to send a message."""

import time
from typing import NamedTuple

_MEETINGS, _MESSAGES = 1_000, 200
_WARM = 50


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
            for _ in range(_WARM):
                team.meet()
            started = time.perf_counter()
            for _ in range(_MEETINGS):
                team.meet()
            barrier = (time.perf_counter() - started) / _MEETINGS
            mine, theirs = (there, back) if node == 0 else (back, there)
            for number in range(_MESSAGES + _WARM):
                if number == _WARM:
                    started = time.perf_counter()
                if node == 1:
                    theirs.put(number)
                    mine.get(timeout=60)
                else:
                    mine.get(timeout=60)
                    theirs.put(number)
            # A round trip has two messages, each with a sender and a receiver.
            message = (time.perf_counter() - started) / _MESSAGES / 4
            found = ExchangeTime(barrier, message)
            team.meet()

        task.use(_measure)
        task.run(max_step=1)
    return found
