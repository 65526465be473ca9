"""F1-F6: real signals to a real driver, at every stage of its run."""

import os
import signal
import time
from typing import Any

from benchmarks.faults.node_scene import Broken, Trial, trial

Outcome = dict[str, Any]
CODES = {signal.SIGINT: (130,), signal.SIGTERM: (143,)}
BY_THE_SIGNAL = {signal.SIGINT: (-2, 1), signal.SIGTERM: (-15,)}
"""How Python leaves while it has its own handlers."""
GONE = 10.0


def _send(it: Trial, number: int, group: bool = False) -> None:
    if it.driver.poll() is not None:
        raise Broken("the driver was gone before the signal")
    if group:
        os.killpg(it.driver.pid, number)
    else:
        it.driver.send_signal(number)


def _judge(
    it: Trial, codes: tuple[int, ...], since: float, limit: float = GONE, twice: bool = False
) -> Outcome:
    code = it.ended(None, limit + 5.0)
    if it.events("left", "returned"):  # out of the run: then signals are Python's own affair
        codes = (*codes, -2, -15, 1) if twice else codes
    it.all_gone(limit)
    seconds = time.monotonic() - since
    if code not in codes:
        raise Broken(f"the driver left with {code}, not one of {codes}: {it.output()[-800:]}")
    if seconds > limit:
        raise Broken(f"all were gone after {seconds:.1f} s only")
    return {"landed": 1, "t_all_gone": seconds, f"exit_{code}": 1} | it.look_round(lossy=True)


def _once(seed: int, faulty: bool, number: signal.Signals, group: bool = False) -> Outcome:
    with trial(seed) as it:
        it.ready()
        it.later()
        if not faulty:
            it.finish()
            return it.look_round()
        started = time.monotonic()
        _send(it, number, group)
        out = _judge(it, CODES[number], started)
        ended = {event["node"] for event in it.events("ended")}
        if len(ended) != it.size:
            raise Broken(f"only nodes {ended} came to the end of their program")
        return out


def interrupted(seed: int, faulty: bool) -> Outcome:
    """F1: SIGINT to the driver: every node finishes its loop, exit code 130."""
    return _once(seed, faulty, signal.SIGINT)


def terminated(seed: int, faulty: bool) -> Outcome:
    """F2: SIGTERM to the driver: every node finishes its loop, exit code 143."""
    return _once(seed, faulty, signal.SIGTERM)


def group_or_driver(seed: int, faulty: bool) -> Outcome:
    """F6: the signal goes to the whole group, as a terminal does it."""
    return _once(seed, faulty, (signal.SIGINT, signal.SIGTERM)[seed % 2], group=True)


def twice(seed: int, faulty: bool) -> Outcome:
    """F3: an actor does not finish (grace 20 s); a second signal ends all at once."""
    first, second = ((signal.SIGINT, signal.SIGTERM)[seed // n % 2] for n in (1, 2))
    config = {"hang": "dead loop"} if faulty else {}
    with trial(seed, runner={"grace": 20.0}, config=config) as it:
        it.ready()
        if not faulty:
            it.finish()
            return it.look_round()
        (it.place / "hang.2.0").touch()
        it.wait(lambda: it.events("hangs"), "an actor to hang")
        _send(it, first)
        it.later(0.05, 0.8)
        started = time.monotonic()
        _send(it, second)
        return _judge(it, CODES[first], started, 2.0)


def during_start(seed: int, faulty: bool) -> Outcome:
    """F4: the signal comes while the nodes are being started."""
    number = (signal.SIGINT, signal.SIGTERM)[seed % 2]
    with trial(seed, config={"warm": False}) as it:
        if not faulty:
            it.ready()
            it.finish()
            return it.look_round()
        # The first line of the driver, then anything up to the first loops.
        it.wait(lambda: it.events("driver"), "the driver to begin")
        it.later(0.0, 0.35)
        early = not it.events("loops")
        started = time.monotonic()
        _send(it, number)
        codes = CODES[number] + (BY_THE_SIGNAL[number] if early else ())
        return _judge(it, codes, started) | {"before_the_first_loop": int(early)}


def during_stop(seed: int, faulty: bool) -> Outcome:
    """F4: the signal comes while the run ends by itself, or while it ends by another signal."""
    number = (signal.SIGINT, signal.SIGTERM)[seed % 2]
    with trial(seed) as it:
        it.ready()
        it.later()
        if not faulty:
            it.finish()
            return it.look_round()
        started = time.monotonic()
        if seed % 3:
            it.drain()
            (it.place / "stop").touch()
            codes: tuple[int, ...] = (*CODES[number], 0)
        else:
            _send(it, number)
            codes = CODES[number]
        it.later(0.0, 0.03)
        number = (signal.SIGINT, signal.SIGTERM)[seed // 2 % 2] if not seed % 3 else number
        it.driver.send_signal(number)
        return _judge(it, codes, started, twice=True)


KINDS = {
    "F1": interrupted,
    "F2": terminated,
    "F3": twice,
    "F4-start": during_start,
    "F4-stop": during_stop,
    "F6": group_or_driver,
}
