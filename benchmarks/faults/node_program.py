"""The program that node_faults.py tries its faults on, and the driver that runs it.

    python -m benchmarks.faults.node_program DIRECTORY      DIRECTORY/config.json says how

    actor(s) --numbered items, each with its checksum--> Channel at the learner
    learner  --weights by version--> ParameterServer -> actors, evaluator

What happens is written to files in DIRECTORY, by the processes themselves and with the monotonic
clock, so that it outlives each of them:

    events             a JSON line for what matters
    put.NODE.INC       how many items that process of an actor had put
    got.INC            a record for each item that that process of the learner got
    stop, drain        made by the harness: end the run; put nothing more
"""

import ctypes
import json
import os
import re
import signal
import struct
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from muster import NodeError, Parallel, Task
from muster.errors import MusterError
from muster.flow import Channel, ParameterServer

RECORD = struct.Struct("<IIIId")
"""Worker, its incarnation, episode, number, and when it was got."""
EPISODE = 10
INCARNATION = 1 << 32


class Notes:
    """Where one process writes what happens to it."""

    def __init__(self, place: Path, **who: Any) -> None:
        self.place = place
        self._fd = os.open(place / "events", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._who = {**who, "pid": os.getpid()}

    def note(self, event: str, **more: Any) -> None:
        """Write a line."""
        line = {"t": time.monotonic(), "event": event, **self._who, **more}
        os.write(self._fd, json.dumps(line).encode() + b"\n")

    def close(self) -> None:
        """Write no more."""
        os.close(self._fd)


def weights_of(version: int) -> Any:
    """Return weights that tell which version they are, in every place."""
    return np.full(2000, version % 1_000_003, np.int64)


class Follower:
    """Pulls weights, and looks whether they are whole and never older than before."""

    def __init__(self, server: ParameterServer, notes: Notes) -> None:
        self.server, self.notes = server, notes
        self.version = 0
        self.noted = 0.0

    def look(self, timeout: float = 0.0) -> None:
        """Take the newest version."""
        if self.server.version < self.version:
            self.notes.note("went back", was=self.version, now=self.server.version)
        got = self.server.pull(newer_than=self.version, timeout=timeout)
        if got is None:
            return
        if got.version <= self.version:
            self.notes.note("went back", was=self.version, now=got.version)
        if not (np.asarray(got.values) == got.info["stamp"]).all():
            self.notes.note("torn weights", version=got.version)
        first_of = got.version // INCARNATION != self.version // INCARNATION or not self.version
        self.version = got.version
        if first_of or time.monotonic() - self.noted > 0.2:
            self.noted = time.monotonic()
            self.notes.note("version", version=got.version, stamp=got.info["stamp"])


def act(task: Task, config: dict[str, Any], notes: Notes, channel: Channel, me: Any) -> Any:
    """Return what an actor does in each loop."""
    rng = np.random.default_rng([config["seed"], me.node_id, me.incarnation])
    follower = Follower(ParameterServer(home="role.learner"), notes)
    counter = os.open(notes.place / f"put.{me.node_id}.{me.incarnation}", os.O_RDWR | os.O_CREAT)
    state = {"seq": 0, "drains": False}
    drain, hang = notes.place / "drain", notes.place / f"hang.{me.node_id}.{me.incarnation}"

    def step(ctx: Any) -> None:
        follower.look()
        if drain.exists():
            if not state["drains"]:
                state["drains"] = True
                notes.note("drains")
            time.sleep(0.01)
            return
        if config.get("hang") and hang.exists():
            notes.note("hangs")
            hold_the_interpreter(config["hang"])
        seq = state["seq"]
        size = int(rng.choice(config["sizes"]))
        data = rng.integers(0, 256, size, np.uint8)
        item = {
            "id": [me.node_id, me.incarnation, seq // EPISODE, seq],
            "sum": zlib.crc32(data.data),
            "data": data,
            "version": follower.version,
        }
        started = time.monotonic()
        if channel.put(item):
            state["seq"] += 1
            os.pwrite(counter, struct.pack("<Q", state["seq"]), 0)
        if time.monotonic() - started > 0.5:
            notes.note("put waited", seconds=time.monotonic() - started, waited=channel.waited)
        time.sleep(config["pace"])

    return step


def hold_the_interpreter(how: str) -> None:
    """Never come back, and let no other thread of this process run either."""
    if how == "c call":
        ctypes.PyDLL(None).sleep(1000)
    if how == "regex":
        re.match(r"(a+)+$", "a" * 64 + "b")
    while True:
        pass


def learn(task: Task, config: dict[str, Any], notes: Notes, channel: Channel, me: Any) -> Any:
    """Return what the learner does in each loop."""
    server = ParameterServer(home="role.learner")
    log = os.open(notes.place / f"got.{me.incarnation}", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    saved, stop = notes.place / "checkpoint.json", notes.place / "stop"
    state: dict[str, Any] = {"updates": 0, "items": 0, "last": None, "seen": set()}
    if me.resumed:
        kept = json.loads(saved.read_text()) if saved.exists() else {"updates": 0}
        state["updates"] = kept["updates"]
        notes.note("resumed", updates=kept["updates"])

    def push() -> None:
        state["updates"] += 1
        aside = saved.with_name(f".{saved.name}")
        aside.write_text(json.dumps({"updates": state["updates"]}))
        aside.replace(saved)  # first: what a follower has seen must not be lost with this process
        version = server.push(weights_of(state["updates"]), stamp=state["updates"] % 1_000_003)
        if version // INCARNATION != me.incarnation:
            notes.note("bad version", version=version)

    def step(ctx: Any) -> None:
        if stop.exists():
            ctx.finish = True
            return
        try:
            got = channel.get_with_source(timeout=0.1)
        except TimeoutError:
            return
        if got is None:
            notes.note("channel ended")
            return
        now = time.monotonic()
        worker, incarnation, episode, seq = got.value["id"]
        os.write(log, RECORD.pack(worker, incarnation, episode, seq, now))
        if zlib.crc32(got.value["data"]) != got.value["sum"]:
            notes.note("torn item", id=got.value["id"])
        if (got.sender, got.incarnation) != (worker, incarnation) or seq // EPISODE != episode:
            notes.note("wrong source", id=got.value["id"], of=[got.sender, got.incarnation])
        if (worker, incarnation) not in state["seen"]:
            state["seen"].add((worker, incarnation))
            notes.note("first item", worker=worker, incarnation=incarnation)
        if state["last"] is not None and now - state["last"] > 0.05:
            notes.note("stall", seconds=now - state["last"])
        state["last"] = now
        state["items"] += 1
        if state["items"] % 20 == 0:
            push()
        time.sleep(config.get("learner_sleep", 0.0))

    push()
    return step


def evaluate(task: Task, config: dict[str, Any], notes: Notes, channel: Channel, me: Any) -> Any:
    """Return what the evaluator does in each loop."""
    follower = Follower(ParameterServer(home="role.learner"), notes)

    def step(ctx: Any) -> None:
        follower.look(timeout=0.1)
        time.sleep(0.01)

    return step


ROLES: dict[str, Callable[..., Any]] = {"learner": learn, "evaluator": evaluate, "actor": act}


def node_main(directory: str) -> dict[str, int]:
    """What every node runs."""
    place = Path(directory)
    config = json.loads((place / "config.json").read_text())
    with Task() as task:
        me = task.router
        role = next(label.removeprefix("role.") for label in me.labels if label.startswith("role."))
        notes = Notes(place, role=role, node=me.node_id, inc=me.incarnation)
        notes.note("born")
        if config.get("crash") == me.node_id:
            os.kill(os.getpid(), signal.SIGKILL)
        if me.resumed:
            time.sleep(config.get("slow_resume", 0.0))
        channel = Channel("items", home="role.learner", capacity=config.get("capacity", 16))
        work = ROLES[role](task, config, notes, channel, me)

        def begin(ctx: Any) -> None:
            if ctx.total_step == 0:
                notes.note("loops")

        task.use(begin).use(work)
        task.run()
        notes.note("ended", waited=channel.waited)
        return {"node": me.node_id, "incarnation": me.incarnation}


def open_files() -> int:
    """Return how many files this process has open."""
    return len(os.listdir("/proc/self/fd"))


def drive(place: Path) -> None:
    """Run the program as the configuration says, and write what came of it."""
    import muster.flow.node  # noqa: F401  # so that the fork server has it
    from muster.engines.local.forkserver import SERVER

    config = json.loads((place / "config.json").read_text())
    notes = Notes(place, role="driver")
    if config.get("warm", True):  # Python's own helpers are no leak
        from multiprocessing import resource_tracker

        resource_tracker.ensure_running()
        SERVER.prepare()
    before = open_files()
    notes.note("driver", files=before)
    try:
        got = Parallel.runner(**config["runner"])(node_main, str(place))
        notes.note("returned", got=got, files=open_files())
    except NodeError as error:
        notes.note(
            "failed", failed=error.node, of=error.role, cause=error.cause, text=str(error),
            files=open_files(),
        )  # fmt: skip
        raise SystemExit(3) from None
    except MusterError as error:
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        notes.note("refused", text=str(error), children=len(children))
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        notes.note("left", by="KeyboardInterrupt", files=open_files())
        raise SystemExit(130) from None
    except BaseException as error:
        notes.note("left", by=type(error).__name__, files=open_files(), text=str(error))
        raise


if __name__ == "__main__":
    drive(Path(sys.argv[1]))
