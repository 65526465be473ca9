"""One trial of node_faults.py: the driver as a process, the fault, the look at the end."""

import json
import os
import random
import select
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from benchmarks.faults.children import end_with_harness
from benchmarks.faults.node_program import EPISODE, RECORD

ROOT = Path(__file__).parents[2]
SOURCE = os.environ.get("MUSTER_SOURCE", str(ROOT / "src"))
"""Which muster is tried: a copy, where the one here is being worked on."""
TIMEOUT = 30.0
MARK = "MUSTER_TRIAL"
HELPERS = (b"muster.engines.local.forked", b"multiprocessing.resource_tracker")
KNOWN_BAD = ("torn item", "torn weights", "wrong source", "went back", "bad version")


class Broken(Exception):
    """A promise was not kept, or the trial did not get where it had to."""


class Fault:
    """A process that a fault is aimed at; its id cannot come to mean another one."""

    def __init__(self, event: dict[str, Any]) -> None:
        self.pid, self.node, self.inc = event["pid"], event["node"], event["inc"]
        self.fd = os.pidfd_open(self.pid)
        self.at = 0.0

    def send(self, number: int) -> bool:
        """Send it a signal; False if it is gone."""
        self.at = time.monotonic()
        try:
            signal.pidfd_send_signal(self.fd, number)
        except ProcessLookupError:
            return False
        return True

    def gone(self) -> bool:
        """Whether the process has ended."""
        return bool(select.select([self.fd], [], [], 0)[0])

    def stopped(self) -> bool:
        """Whether the kernel says that it is stopped."""
        with suppress(OSError):
            return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
        return False

    def close(self) -> None:
        """Let go of it."""
        os.close(self.fd)


class Trial:
    """A run of the program.

    Args:
        seed: Decides sizes of items and moments of faults.
        runner: Options for `Parallel.runner` beside the roles.
        actors: How many.
        config: More for config.json.
        before: Called in the driver's process before it starts.
        prefix: Words before the command.
        module: What to run instead of node_program.
        runtime: Where sockets go, if not to a place of its own.
    """

    def __init__(
        self,
        seed: int,
        runner: dict[str, Any] | None = None,
        actors: int = 2,
        config: dict[str, Any] | None = None,
        before: Callable[[], None] | None = None,
        prefix: tuple[str, ...] = (),
        module: str = "benchmarks.faults.node_program",
        runtime: Path | None = None,
    ) -> None:
        self.rng = random.Random(seed)
        self._shm = set(os.listdir("/dev/shm"))
        self._space = tempfile.TemporaryDirectory(prefix="nodefault-")
        self.place = Path(self._space.name)
        # Paths of sockets are short, wherever temporary files are.
        self._sockets = tempfile.TemporaryDirectory(prefix="nf-", dir="/tmp")
        self.runtime = runtime or Path(self._sockets.name)
        self.runtime.mkdir(mode=0o700, exist_ok=True)
        roles = {"learner": 1, "evaluator": 1, "actor": actors}
        options = {
            "roles": roles,
            "on_failure": {"actor": "restart", "evaluator": "restart", "learner": "resume"},
            "grace": 5.0,
            "log_dir": str(self.place / "logs"),
            **(runner or {}),
        }
        full = {"seed": seed, "sizes": [1000, 200_000], "pace": 0.003, "runner": options}
        (self.place / "config.json").write_text(json.dumps({**full, **(config or {})}))
        self.size = sum(options["roles"].values())
        self.mark = uuid.uuid4().hex
        environ = os.environ | {
            "PYTHONPATH": f"{SOURCE}:{ROOT}",
            "XDG_RUNTIME_DIR": str(self.runtime),
            "TMPDIR": str(self.runtime),
            MARK: self.mark,
        }
        self._output = open(self.place / "output", "w+b")  # noqa: SIM115  # closed by `close`
        self._faults: list[Fault] = []
        self.started = time.monotonic()
        words = [*prefix, sys.executable, "-m", module, str(self.place)]
        self.driver = subprocess.Popen(
            words, env=environ, cwd=ROOT, stdin=subprocess.DEVNULL,
            stdout=self._output, stderr=self._output, start_new_session=True,
            preexec_fn=lambda: _in_the_driver(before),
        )  # fmt: skip

    # ---- what is there to be seen

    def events(self, *names: str, **wanted: Any) -> list[dict[str, Any]]:
        """Return the events of these names in order, whose fields are as wanted."""
        try:
            lines = (self.place / "events").read_bytes().splitlines()
        except FileNotFoundError:
            return []
        found = []
        for line in lines:
            with suppress(ValueError):  # the last one may be half there
                event = json.loads(line)
                same = all(event.get(key) == value for key, value in wanted.items())
                if event["event"] in names and same:
                    found.append(event)
        return found

    def output(self) -> str:
        """Return what the driver and the nodes printed."""
        return (self.place / "output").read_text(errors="replace")

    def wait(self, condition: Callable[[], Any], what: str, seconds: float = TIMEOUT) -> Any:
        """Return what is true in the end; the trial is broken if nothing is in time."""
        deadline = time.monotonic() + seconds
        while not (value := condition()):
            if time.monotonic() > deadline:
                raise Broken(f"waited {seconds} s for: {what}")
            time.sleep(0.005)
        return value

    def ready(self) -> None:
        """Wait until items of all actors come to the learner and all nodes have weights."""
        actors = json.loads((self.place / "config.json").read_text())["runner"]["roles"]["actor"]

        def all_there() -> bool:
            if self.driver.poll() is not None:
                raise Broken(f"the driver left with {self.driver.returncode}")
            first = {event["worker"] for event in self.events("first item")}
            versions = {event["node"] for event in self.events("version")}
            return bool(len(first) == actors and len(versions) == actors + 1)

        self.wait(all_there, "all nodes to work")

    def newest(self, role: str) -> list[dict[str, Any]]:
        """Return the last birth of each node of a role."""
        last = {event["node"]: event for event in self.events("born", role=role)}
        return [last[node] for node in sorted(last)]

    def aim(self, born: dict[str, Any]) -> Fault:
        """Hold on to a node's process."""
        fault = Fault(born)
        self._faults.append(fault)
        return fault

    def later(self, least: float = 0.0, most: float = 0.3) -> None:
        """Let a seeded time pass."""
        time.sleep(self.rng.uniform(least, most))

    def replaced(self, fault: Fault, seconds: float = 10.0) -> tuple[float, dict[str, Any]]:
        """Return how long after the fault the next process of that node began."""

        def begun() -> list[dict[str, Any]]:
            if self.driver.poll() is not None:
                raise Broken(f"the driver left with {self.driver.returncode}")
            return self.events("born", node=fault.node, inc=fault.inc + 1)

        born = self.wait(begun, "the next incarnation", seconds)[0]
        return born["t"] - fault.at, born

    def works_again(self, fault: Fault, seconds: float = 10.0) -> float:
        """Return how long after the fault an item of the next process was got."""
        found = self.wait(
            lambda: self.events("first item", worker=fault.node, incarnation=fault.inc + 1),
            "an item of the next incarnation", seconds,
        )  # fmt: skip
        return float(found[0]["t"]) - fault.at

    # ---- processes

    def processes(self) -> dict[int, bytes]:
        """Return all live processes of this trial, whoever their parent is by now."""
        found = {}
        wanted = f"{MARK}={self.mark}".encode()
        for name in os.listdir("/proc"):
            if not name.isdigit():
                continue
            with suppress(OSError):
                if wanted in Path(f"/proc/{name}/environ").read_bytes():
                    found[int(name)] = Path(f"/proc/{name}/cmdline").read_bytes()
        return found

    def nodes(self) -> list[int]:
        """Return the ids of the nodes' processes."""
        alive = self.processes()
        return [e["pid"] for role in ("learner", "evaluator", "actor") for e in self.newest(role)
                if e["pid"] in alive]  # fmt: skip

    # ---- the end

    def history(self) -> dict[str, Any]:
        """Check all that was put against all that was got (J7)."""
        put = {}
        for path in self.place.glob("put.*.*"):
            _, worker, inc = path.name.split(".")
            put[int(worker), int(inc)] = int.from_bytes(path.read_bytes()[:8], "little")
        counts = {"items": 0, "again": 0, "duplicated": 0, "gaps": 0, "stale": 0, "spliced": 0}
        got: dict[tuple[int, int], int] = {}
        newest: dict[int, int] = {}
        paths = sorted(self.place.glob("got.*"), key=lambda path: int(path.name.split(".")[1]))
        for life, path in enumerate(paths):
            here: set[tuple[int, int]] = set()
            data = path.read_bytes()
            for worker, inc, episode, seq, _ in RECORD.iter_unpack(
                data[: len(data) - len(data) % RECORD.size]
            ):
                who = (worker, inc)
                expected = got.get(who, 0)
                counts["items"] += 1
                counts["stale"] += inc < newest.get(worker, 0)
                counts["spliced"] += episode != seq // EPISODE
                newest[worker] = max(inc, newest.get(worker, 0))
                if seq < expected and who not in here and life:
                    # Taken by a learner that died before it said so: all from there come again.
                    counts["again"] += expected - seq
                elif seq < expected:
                    counts["duplicated"] += 1
                elif seq > expected:
                    # One may have been taken by the learner that died before it wrote it down.
                    counts["gaps"] += seq - expected - (1 if life and who not in here else 0)
                here.add(who)
                got[who] = seq + 1
        last = {worker: inc for worker, inc in sorted(put)}
        counts["lost_of_the_dead"] = sum(
            max(0, count - got.get(who, 0)) for who, count in put.items() if last[who[0]] != who[1]
        )
        counts["lost_of_the_living"] = sum(
            max(0, count - got.get(who, 0)) for who, count in put.items() if last[who[0]] == who[1]
        )
        return counts

    def drain(self) -> None:
        """Have the actors put nothing more, and wait until the learner got everything."""
        (self.place / "drain").touch()

        def drained() -> bool:
            said = {(event["node"], event["inc"]) for event in self.events("drains")}
            actors = {(event["node"], event["inc"]) for event in self.newest("actor")}
            return actors <= said and self.history()["lost_of_the_living"] == 0

        self.wait(drained, "the last items", 15.0)

    def finish(self, code: int | None = 0) -> int:
        """End the run from inside, and check its exit code."""
        self.drain()
        (self.place / "stop").touch()
        return self.ended(code)

    def ended(self, code: int | None = 0, seconds: float = TIMEOUT) -> int:
        """Wait for the driver's end."""
        try:
            left = self.driver.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Broken(f"the driver did not end in {seconds} s") from None
        if code is not None and left != code:
            raise Broken(f"the driver left with {left}, not {code}: {self.output()[-600:]}")
        return left

    def all_gone(self, seconds: float) -> float:
        """Return how long it takes until no process of the trial is left."""
        started = time.monotonic()
        self.wait(lambda: not self.processes(), f"no process: {self.processes()}", seconds)
        return time.monotonic() - started

    def look_round(self, directory_may_stay: bool = False, lossy: bool = False) -> dict[str, Any]:
        """Check what is left after the end, and what was seen on the way."""
        self.all_gone(5.0)
        left = list(self.runtime.glob("muster-*"))
        if left and not directory_may_stay:
            raise Broken(f"left behind: {[path.name for path in left]}")
        if str(self.place) in Path("/proc/net/unix").read_text():
            raise Broken("a socket still listens")
        if names := self._new_shared_memory():
            raise Broken(f"new shared memory: {names}")
        files = [e["files"] for e in self.events("driver", "returned", "failed", "left")]
        # Python's two helpers, where they were not there before.
        helpers = 0 if json.loads((self.place / "config.json").read_text()).get("warm", True) else 2
        if len(files) == 2 and files[1] > files[0] + helpers:
            raise Broken(f"the parent had {files[0]} files open, then {files[1]}")
        bad = self.events(*KNOWN_BAD)
        if bad:
            raise Broken(f"{len(bad)} bad: {bad[:3]}")
        # Out of the run again, signals are Python's own affair.
        if "Traceback" in self.output() and not self.events("left"):
            raise Broken(f"a traceback: {self.output()[-1500:]}")
        history = self.history()
        wrong = {name: history[name] for name in ("duplicated", "gaps", "stale", "spliced")}
        if any(value > 0 for value in wrong.values()):
            raise Broken(f"history: {wrong}")
        if history["lost_of_the_living"] and not lossy:
            raise Broken(f"lost: {history['lost_of_the_living']} items of living actors")
        return history

    def _new_shared_memory(self) -> set[str]:
        """Return names that are new, that stay, and that no other process on this machine has."""
        deadline = time.monotonic() + 1.0
        while names := {n for n in set(os.listdir("/dev/shm")) - self._shm if _is_left(n)}:
            if time.monotonic() > deadline:
                return names
            time.sleep(0.05)
        return set()

    def close(self) -> None:
        """See to it that nothing of it is left, whatever happened."""
        with suppress(ProcessLookupError):
            self.driver.kill()
        self.driver.wait()
        deadline = time.monotonic() + 2.0
        while (left := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.05)
        for pid in left:  # they carry our mark
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for fault in self._faults:
            fault.close()
        self._output.close()
        self._space.cleanup()
        self._sockets.cleanup()


def _in_the_driver(before: Callable[[], None] | None) -> None:
    """Prepare the driver's process."""
    end_with_harness()
    # A harness that runs in the background was told to ignore it, and would hand that down.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if before is not None:
        before()


def _is_left(name: str) -> bool:
    path = f"/dev/shm/{name}"
    if not os.path.isfile(path):
        return False
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            if path in Path(f"/proc/{pid}/maps").read_text():
                return False
    return True


@contextmanager
def trial(seed: int, **options: Any) -> Iterator[Trial]:
    """Run one trial, and clean up after it."""
    it = Trial(seed, **options)
    try:
        yield it
    except Broken as error:
        logs = it.output()[-1500:]
        raise Broken(
            f"{error} | output: {logs}" if logs not in str(error) else str(error)
        ) from None
    finally:
        it.close()
