"""A and H: nodes that die in the middle of their work, and a learner that is slow."""

import itertools
import os
import signal
import time
from pathlib import Path
from typing import Any

from benchmarks.faults.node_program import INCARNATION
from benchmarks.faults.node_scene import Broken, Fault, Trial, trial

Outcome = dict[str, Any]
DETECT, RECOVER = 1.0, 5.0


def _kill(it: Trial, faults: list[Fault]) -> int:
    for fault in faults:
        if not fault.send(signal.SIGKILL):
            raise Broken("it was gone before the fault")
    for fault in faults:
        it.wait(fault.gone, "the killed process to be gone", 2.0)
    return len(faults)


def _within(limit: float, **seconds: float) -> None:
    for name, value in seconds.items():
        if value > limit:
            raise Broken(f"{name} is {value:.2f} s, more than {limit} s")


def _actors(seed: int, faulty: bool, actors: int, victims: int) -> Outcome:
    with trial(seed, actors=actors) as it:
        it.ready()
        it.later()
        out: Outcome = {"landed": 0, "t_detect": [], "t_recover": []}
        if faulty:
            chosen = [it.aim(born) for born in it.rng.sample(it.newest("actor"), victims)]
            _kill(it, chosen)
            out["landed"] = 1
            for fault in chosen:
                out["t_detect"].append(it.replaced(fault)[0])
                out["t_recover"].append(it.works_again(fault))
            _within(DETECT, t_detect=max(out["t_detect"]))
            _within(RECOVER, t_recover=max(out["t_recover"]))
        else:
            it.later(0.0, 0.2)
        it.finish()
        return out | it.look_round()


def one_actor(seed: int, faulty: bool) -> Outcome:
    """A1: an actor is killed."""
    return _actors(seed, faulty, actors=3, victims=1)


def one_while_the_learner_is_busy(seed: int, faulty: bool) -> Outcome:
    """A1: an actor is killed while the learner is stopped for 6.5 s, which is no hang here."""
    with trial(seed, runner={"hang_after": 60.0}) as it:
        it.ready()
        it.later()
        out: Outcome = {"landed": 0}
        if faulty:
            busy = it.aim(it.newest("learner")[0])
            busy.send(signal.SIGSTOP)
            it.wait(busy.stopped, "the learner to be stopped", 2.0)
            fault = it.aim(it.rng.choice(it.newest("actor")))
            out["landed"] = _kill(it, [fault])
            time.sleep(6.5)
            busy.send(signal.SIGCONT)
            out["t_join"] = it.works_again(fault, 10.0) + fault.at - busy.at
            _within(RECOVER, t_join=out["t_join"])
        it.finish()
        return out | it.look_round()


def half_of_the_actors(seed: int, faulty: bool) -> Outcome:
    """A2: half of the actors are killed at once."""
    return _actors(seed, faulty, actors=4, victims=2)


def all_actors(seed: int, faulty: bool) -> Outcome:
    """A3: all actors are killed at once."""
    return _actors(seed, faulty, actors=3, victims=3)


def cpu_seconds(pid: int) -> float:
    """Return the processor time that a process has had."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def crash_loop(seed: int, faulty: bool) -> Outcome:
    """A4: an actor dies in its first line, each time."""
    budget = 3 + seed % 3
    config = {"crash": 2} if faulty else {}
    with trial(seed, runner={"max_restarts": budget}, config=config) as it:
        if not faulty:
            it.ready()
            it.finish()
            return it.look_round()
        cpu = 0.0
        deadline = time.monotonic() + 30.0
        while it.driver.poll() is None and time.monotonic() < deadline:
            try:
                cpu = cpu_seconds(it.driver.pid)
            except (OSError, IndexError):
                break
            time.sleep(0.01)
        it.ended(3)
        seconds = time.monotonic() - it.started
        births = [event["t"] for event in it.events("born", node=2)]
        (failed,) = it.events("failed")
        pauses = [b - a for a, b in itertools.pairwise(births)]
        if len(births) != budget + 1:
            raise Broken(f"{len(births)} births, with a budget of {budget}")
        named = f"replaced {budget} times" in failed["text"] and "node 2" in failed["text"]
        if (failed["failed"], failed["cause"]) != (2, "killed") or not named:
            raise Broken(f"the error is {failed}")
        for number, pause in enumerate(pauses[1:]):
            if pause < 0.1 * 2**number:
                raise Broken(f"no back-off: {pauses}")
        if cpu > 0.5 * seconds + 0.5:
            raise Broken(f"the parent used {cpu:.1f} s of {seconds:.1f} s")
        out = {"landed": 1, "restarts": budget, "t_until_error": births[-1] - births[0]}
        return out | {"t_parents_cpu": cpu} | it.look_round(lossy=True)


def _stall(it: Trial, since: float, until: float) -> float:
    stalls = [e["seconds"] for e in it.events("stall") if since <= e["t"] <= until + 1.0]
    return max(stalls, default=0.0)


def evaluator(seed: int, faulty: bool) -> Outcome:
    """A5: the evaluator is killed; training goes on."""
    with trial(seed) as it:
        it.ready()
        it.later()
        out: Outcome = {"landed": 0}
        started = time.monotonic()
        if faulty:
            fault = it.aim(it.newest("evaluator")[0])
            out["landed"] = _kill(it, [fault])
            out["t_detect"], _ = it.replaced(fault)
            again = it.wait(
                lambda: it.events("version", node=fault.node, inc=fault.inc + 1), "weights"
            )
            out["t_recover"] = again[0]["t"] - fault.at
            _within(DETECT, t_detect=out["t_detect"])
            _within(RECOVER, t_recover=out["t_recover"])
        time.sleep(0.2)
        out["t_learner_stall"] = _stall(it, started, time.monotonic())
        _within(1.0, learner_stall=out["t_learner_stall"])
        it.finish()
        return out | it.look_round()


def learner(seed: int, faulty: bool) -> Outcome:
    """A7: the learner is killed and resumes; what it had not acknowledged comes again."""
    return _learner(seed, faulty, 0.0, RECOVER)


def parameter_server(seed: int, faulty: bool) -> Outcome:
    """A8: the home of the weights dies and is away for 0.7 s; the last version stays in use."""
    return _learner(seed, faulty, 0.7, RECOVER + 0.7)


def _learner(seed: int, faulty: bool, away: float, limit: float) -> Outcome:
    with trial(seed, config={"slow_resume": away}) as it:
        it.ready()
        it.later(0.1, 0.5)
        out: Outcome = {"landed": 0}
        if faulty:
            before = it.events("version")[-1]["stamp"]
            fault = it.aim(it.newest("learner")[0])
            out["landed"] = _kill(it, [fault])
            out["t_detect"], _ = it.replaced(fault)
            resumed = it.wait(lambda: it.events("resumed", inc=1), "it to resume")[0]
            if resumed["updates"] < before:
                raise Broken(f"updates went back from {before} to {resumed['updates']}")
            items = it.wait(lambda: it.events("first item", inc=1), "items")
            out["t_recover"] = items[0]["t"] - fault.at
            followers = it.size - 1

            def followed() -> bool:
                newer = [e for e in it.events("version") if e["version"] > INCARNATION]
                return bool(len({event["node"] for event in newer}) == followers)

            it.wait(followed, "newer weights at every node")
            newer = [e for e in it.events("version") if e["version"] > INCARNATION]
            first = {event["node"]: event["t"] for event in reversed(newer)}
            out["t_without_new_weights"] = max(first.values()) - fault.at
            _within(DETECT, t_detect=out["t_detect"])
            _within(limit, t_recover=out["t_recover"])
            out["version_regressions"] = len(it.events("went back"))
            out["actors_replaced_by_mistake"] = sum(e["inc"] for e in it.newest("actor"))
            if out["actors_replaced_by_mistake"]:
                raise Broken("actors were replaced too")
            it.later(0.0, 0.2)
        it.finish()
        got = it.look_round()
        limit = 16 * 2  # what both actors may have under way
        if got["again"] > limit:
            raise Broken(f"{got['again']} items came again, more than the windows hold")
        return out | got


def driver(seed: int, faulty: bool) -> Outcome:
    """A9: the driver is killed; every child goes."""
    with trial(seed) as it:
        it.ready()
        it.later()
        if not faulty:
            it.finish()
            return it.look_round()
        children = len(it.processes()) - 1
        if children < it.size + 1:
            raise Broken(f"only {children} children")
        it.driver.kill()
        it.driver.wait()
        out = {"landed": 1, "t_all_gone": it.all_gone(5.0), "children": children}
        # The directory of sockets can only be removed by the next run: F7.
        return out | it.look_round(directory_may_stay=True, lossy=True)


SIZES = (1_000, 200_000, 8_000_000)


def while_writing(seed: int, faulty: bool) -> Outcome:
    """A10: an actor is killed while it writes, each time that it is back at work."""
    size = SIZES[seed % 3]
    kills = 4
    with trial(seed, config={"sizes": [size], "pace": 0.0}, runner={"max_restarts": 100}) as it:
        it.ready()
        out: Outcome = {"landed": 0, "kills": 0, "t_recover": []}
        actors = it.newest("actor")
        victim, other = actors[seed % 2], actors[1 - seed % 2]
        for _ in range(kills if faulty else 0):
            it.later(0.0, 0.05)
            fault = it.aim(victim)
            out["kills"] += _kill(it, [fault])
            _, victim = it.replaced(fault)
            out["t_recover"].append(it.works_again(fault))
        if faulty:
            out["landed"] = 1
        seen = put_by(it, other)
        it.wait(lambda: put_by(it, other) > seen + 3, "the other actor to go on", 5.0)
        it.later(0.0, 0.1)
        it.finish()
        return out | {f"trials_of_{size}": 1} | it.look_round()


def put_by(it: Trial, born: dict[str, Any]) -> int:
    """Return how many items a process has put so far."""
    data = (it.place / f"put.{born['node']}.{born['inc']}").read_bytes()
    return int.from_bytes(data[:8], "little")


def _memory(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1])
    return 0


def slow_learner(seed: int, faulty: bool) -> Outcome:
    """H1: the learner takes 100 times as long for an item as an actor for making it."""
    config = {"pace": 0.001, "learner_sleep": 0.1 if faulty else 0.0, "sizes": [200_000]}
    with trial(seed, config=config) as it:
        it.ready()
        time.sleep(1.5)
        pids = it.nodes()
        first = {pid: _memory(pid) for pid in pids}
        time.sleep(1.5)
        grown = max(_memory(pid) - first[pid] for pid in pids)
        out: Outcome = {"landed": 0, "t_grown_mb": grown / 1024}
        if grown > 10 * 1024:
            raise Broken(f"memory grew by {grown} kB")
        if faulty:
            counts = it.history()
            out["landed"] = 1
            out["under_way"] = counts["lost_of_the_living"]
            if counts["lost_of_the_living"] > 2 * 16:
                raise Broken("more under way than the windows hold")
            waited = [event["seconds"] for event in it.events("put waited")]
            if not waited:
                raise Broken("the actors did not wait")
        it.finish()
        return out | it.look_round()


def no_actors_left(seed: int, faulty: bool) -> Outcome:
    """H4: actors die and may not be replaced; the learner waits for them."""
    how: dict[str, str] = {"learner": "resume", "evaluator": "restart"}
    with trial(seed, runner={"on_failure": how}) as it:
        it.ready()
        it.later()
        if not faulty:
            it.finish()
            return it.look_round()
        started = time.monotonic()
        faults = [it.aim(born) for born in it.newest("actor")]
        for fault in faults:
            fault.send(signal.SIGKILL)
        it.ended(3, 10.0)
        seconds = time.monotonic() - started
        (failed,) = it.events("failed")
        if failed["of"] != "actor" or failed["cause"] != "killed":
            raise Broken(f"the error is {failed}")
        landed = int(all(fault.gone() for fault in faults))
        return {"landed": landed, "t_until_error": seconds} | it.look_round(lossy=True)


KINDS = {
    "A1": one_actor,
    "A1-late": one_while_the_learner_is_busy,
    "A2": half_of_the_actors,
    "A3": all_actors,
    "A4": crash_loop,
    "A5": evaluator,
    "A7": learner,
    "A8": parameter_server,
    "A9": driver,
    "A10": while_writing,
    "H1": slow_learner,
    "H4": no_actors_left,
}
