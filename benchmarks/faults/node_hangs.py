"""B: nodes that stop without dying."""

import signal
import time
from pathlib import Path
from typing import Any

from benchmarks.faults.node_scene import Broken, Trial, trial

Outcome = dict[str, Any]
HANG_AFTER = 1.0
SLACK = 2.0
"""Seconds that detection may take beyond the deadline, on a machine that others use too."""
HANGS = ("c call", "regex", "dead loop")


def _state(it: Trial, pid: int) -> str:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return fields[0]


def _stopped(seed: int, faulty: bool, role: str) -> Outcome:
    """Stop a node; it is replaced. Every third time it goes on just when it is about to be."""
    with trial(seed, runner={"hang_after": HANG_AFTER}) as it:
        it.ready()
        it.later(0.0, 0.4)
        out: Outcome = {"landed": 0}
        if faulty:
            fault = it.aim(it.rng.choice(it.newest(role)))
            fault.send(signal.SIGSTOP)
            since = fault.at
            it.wait(fault.stopped, "the kernel to say that it is stopped", 1.0)
            out["landed"] = 1
            if seed % 3 == 2:
                it.later(HANG_AFTER - 0.1, HANG_AFTER + 0.2)
                out["went_on_at_the_deadline"] = 1
                out["gone_by_then"] = int(not fault.send(signal.SIGCONT))
                time.sleep(0.3)
                if not fault.gone():
                    out["not_replaced"] = 1
            else:
                it.wait(fault.gone, "the stopped process to be ended", HANG_AFTER + SLACK + 5.0)
                it.replaced(fault)
                out["t_detect"] = it.events("born", node=fault.node)[-1]["t"] - since
                if out["t_detect"] > HANG_AFTER + SLACK:
                    raise Broken(f"t_detect is {out['t_detect']:.1f} s")
                if fault.send(signal.SIGCONT):
                    raise Broken("the stopped process was still there after its replacement")
                fault.at = since
                if role == "actor":
                    out["t_recover"] = it.works_again(fault)
                elif role == "learner":
                    found = it.wait(lambda: it.events("first item", inc=fault.inc + 1), "items")
                    out["t_recover"] = found[0]["t"] - since
            it.later(0.0, 0.3)
        it.finish()
        return out | it.look_round()


def actor_stopped(seed: int, faulty: bool) -> Outcome:
    """B1: an actor is stopped (hang_after=1 s)."""
    return _stopped(seed, faulty, "actor")


def evaluator_stopped(seed: int, faulty: bool) -> Outcome:
    """B2: the evaluator is stopped."""
    return _stopped(seed, faulty, "evaluator")


def learner_stopped(seed: int, faulty: bool) -> Outcome:
    """B4: the learner is stopped."""
    return _stopped(seed, faulty, "learner")


def holds_the_interpreter(seed: int, faulty: bool) -> Outcome:
    """B6: an actor is in a C call that holds the GIL, in a regular expression, in a dead loop."""
    how = HANGS[seed % 3]
    with trial(seed, runner={"hang_after": HANG_AFTER}, config={"hang": how}) as it:
        it.ready()
        it.later()
        out: Outcome = {"landed": 0}
        if faulty:
            fault = it.aim(it.rng.choice(it.newest("actor")))
            (it.place / f"hang.{fault.node}.{fault.inc}").touch()
            hangs = it.wait(lambda: it.events("hangs", node=fault.node), "it to hang", 5.0)
            fault.at = hangs[0]["t"]
            out["landed"] = 1
            out["t_detect"], _ = it.replaced(fault)
            if not fault.gone():
                raise Broken("it was replaced and not ended")
            out["t_recover"] = it.works_again(fault)
            if not HANG_AFTER - 0.2 <= out["t_detect"] <= HANG_AFTER + SLACK:
                raise Broken(f"t_detect is {out['t_detect']:.1f} s")
        it.finish()
        return out | it.look_round()


def short_pauses(seed: int, faulty: bool) -> Outcome:
    """B7: 100 pauses of any node that are shorter than the deadline; nobody is replaced."""
    pauses = 100
    with trial(seed, runner={"hang_after": HANG_AFTER}, actors=3) as it:
        it.ready()
        landed = 0
        targets = [
            it.aim(born) for role in ("actor", "evaluator", "learner") for born in it.newest(role)
        ]
        for _ in range(pauses if faulty else 0):
            fault = it.rng.choice(targets)
            if not fault.send(signal.SIGSTOP):
                raise Broken("a node was gone")
            it.wait(fault.stopped, "it to be stopped", 1.0)
            landed += 1
            time.sleep(it.rng.uniform(0.05, 0.45 * HANG_AFTER))
            fault.send(signal.SIGCONT)
            it.later(0.05, 0.15)
        births = sum(e["inc"] for r in ("actor", "evaluator", "learner") for e in it.newest(r))
        if births:
            raise Broken(f"{births} false restarts")
        it.finish()
        out = {"n": pauses if faulty else 1, "landed": landed, "false_restarts": births}
        return out | it.look_round()


KINDS = {
    "B1": actor_stopped,
    "B2": evaluator_stopped,
    "B4": learner_stopped,
    "B6": holds_the_interpreter,
    "B7": short_pauses,
}
