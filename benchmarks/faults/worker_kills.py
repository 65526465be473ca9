"""PPO's workers killed in mid-training: is the result the same to the bit, and how long is the gap?

    python -m benchmarks.faults.worker_kills --json benchmarks/results/worker_kills.json
    python -m benchmarks.faults.worker_kills --kills-per-run 30 --json ...   one run, 30 kills
    python -m benchmarks.faults.worker_kills --soak 600 --json ...           memory of every process

Run it from the repository; it needs Linux. Each trial is `muster train ppo CartPole-v1` with two
workers as a process of its own. A worker gets SIGKILL at a seeded moment of its training; that it
landed is proved by its process having gone and another one having come. The same trials without a
kill go through the same code. All of them have to end as the serial run of their seed did. With
--json, parts that are in the file and not asked for are kept. Exit code 1 if anything was violated.
"""

import argparse
import json
import os
import random
import signal
import statistics
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
from benchmarks.faults.node_faults import commit
from benchmarks.faults.node_scene import ROOT, SOURCE
from benchmarks.rounds import machine, summary, write

WORKERS = 2
MARK = "MUSTER_TRIAL"
START_WITHIN = 120.0
RECOVER_WITHIN = 30.0
END_WITHIN = 600.0
ENDLESS = 10**9
LOOP = 8 * 128
OPTIONS = {
    "--num-envs": 8,
    "--rollout": 128,
    "--stop-at": 1e9,
    "--eval-every": 0,
    "--eval-episodes": 10,
    "--checkpoint-every": 0,
}


class Broken(Exception):
    """A promise was not kept, or the trial did not get where it had to."""


class Run:
    """One run of the command.

    Args:
        place: A directory of its own.
        seed: Of the run.
        workers: How many; 0 for one process.
        env_steps: For how long.
    """

    def __init__(self, place: Path, seed: int, workers: int, env_steps: int) -> None:
        place.mkdir()
        self.place, self.run = place, place / "run"
        self.mark = uuid.uuid4().hex
        self._shm = set(os.listdir("/dev/shm"))
        self._runtime = place / "runtime"
        self._runtime.mkdir(mode=0o700)
        words: list[Any] = [sys.executable, "-m", "muster.cli.main", "train", "ppo", "CartPole-v1"]
        more = {"--seed": seed, "--workers": workers, "--env-steps": env_steps}
        for name, value in {**OPTIONS, **more, "--run-dir": self.run}.items():
            words += [name, value]
        environ = os.environ | {
            "PYTHONPATH": f"{SOURCE}:{ROOT}",
            "XDG_RUNTIME_DIR": str(self._runtime),
            "TMPDIR": str(self._runtime),
            MARK: self.mark,
        }
        self._output = open(place / "output", "w+b")  # noqa: SIM115  # closed by `close`
        self.started = time.monotonic()
        self.driver = subprocess.Popen(
            [*map(str, words), "--quiet"], env=environ, cwd=ROOT, stdin=subprocess.DEVNULL,
            stdout=self._output, stderr=self._output, start_new_session=True,
            preexec_fn=end_with_harness,
        )  # fmt: skip

    # ---- what is there to be seen

    def env_step(self) -> int:
        """Return the environment steps of the newest line of metrics."""
        try:
            with open(self.run / "metrics.jsonl", "rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - 8192))
                whole = file.read().rpartition(b"\n")[0]
            return int(json.loads(whole.rpartition(b"\n")[2])["env_step"])
        except (OSError, ValueError, KeyError):
            return 0

    def processes(self) -> dict[int, int]:
        """Return all live processes of this run and the parent of each."""
        found = {}
        wanted = f"{MARK}={self.mark}".encode()
        for name in os.listdir("/proc"):
            if name.isdigit():
                with suppress(OSError):
                    place = Path("/proc", name)
                    if wanted in (place / "environ").read_bytes():
                        stat = (place / "stat").read_text().rpartition(")")[2].split()
                        if stat[0] not in "ZX":
                            found[int(name)] = int(stat[1])
        return found

    def workers(self) -> list[int]:
        """Return the workers, which the fork server, a child of the driver, forked.

        The first worker comes first: it is the one that has the metrics open. None, if none has.
        """
        parents = self.processes()
        servers = {pid for pid, parent in parents.items() if parent == self.driver.pid}
        mine = [pid for pid, parent in parents.items() if parent in servers]
        first = [pid for pid in mine if self._writes_metrics(pid)]
        return first + sorted(set(mine) - set(first)) if len(first) == 1 else []

    def _writes_metrics(self, pid: int) -> bool:
        with suppress(OSError):
            for file in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(OSError):
                    if os.readlink(file) == str(self.run / "metrics.jsonl"):
                        return True
        return False

    def output(self) -> str:
        """Return what was printed."""
        return (self.place / "output").read_text(errors="replace")

    def wait(self, condition: Callable[[], Any], what: str, seconds: float) -> Any:
        """Return what is true in the end; broken if nothing is in time."""
        deadline = time.monotonic() + seconds
        while not (value := condition()):
            if self.driver.poll() is not None:
                raise Broken(f"the run ended with {self.driver.returncode} before: {what}")
            if time.monotonic() > deadline:
                raise Broken(f"waited {seconds} s for: {what}")
            time.sleep(0.005)
        return value

    def comes_to(self, step: float) -> None:
        """Wait until the run is at a step."""
        self.wait(lambda: self.env_step() >= step, f"step {step:.0f}", END_WITHIN)

    # ---- the fault

    def kill(self, which: int) -> dict[str, Any]:
        """Kill a worker, prove that it landed, and measure how long it takes to get on."""
        before = self.wait(
            lambda: len(found := self.workers()) == WORKERS and found, "all workers", 30.0
        )
        victim = before[which]
        fd = os.pidfd_open(victim)
        try:
            step = self.env_step()
            killed = time.monotonic()
            signal.pidfd_send_signal(fd, signal.SIGKILL)
        finally:
            os.close(fd)
        self.wait(lambda: victim not in self.processes(), "the killed process to go", 10.0)
        gone = time.monotonic() - killed
        seen = self.env_step()
        new = self.wait(
            lambda: len(found := self.workers()) == WORKERS and set(found) - set(before),
            "a new incarnation",
            RECOVER_WITHIN,
        )
        born = time.monotonic() - killed
        # Without the killed one the others can end the loop that they are in, and no other.
        self.wait(lambda: self.env_step() >= seen + 2 * LOOP, "steps to advance", RECOVER_WITHIN)
        return {
            "victim": victim,
            "new": sorted(new),
            "which": which,
            "env_step": step,
            "t_gone": round(gone, 4),
            "t_born": round(born, 4),
            "t_recover": round(time.monotonic() - killed, 4),
        }

    # ---- the end

    def end(self) -> dict[str, Any]:
        """Wait for the end, and return what came of it and what is left."""
        try:
            code = self.driver.wait(END_WITHIN)
        except subprocess.TimeoutExpired:
            raise Broken(f"it did not end in {END_WITHIN} s") from None
        ended = time.monotonic()
        if code:
            raise Broken(f"it left with {code}: {self.output()[-600:]}")
        deadline = time.monotonic() + 5.0
        while (left := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.02)
        names = [name for name in set(os.listdir("/dev/shm")) - self._shm if _is_left(name)]
        result = json.loads((self.run / "result.json").read_text())
        shown = ("env_steps", "train_iter", "policy_sha256", "eval_return_mean")
        return {
            "rc": code,
            "seconds": round(ended - self.started, 2),
            "left_processes": len(left),
            "left_shm": len(names),
            "left_files": len(list(self._runtime.glob("muster-*"))),
            **{name: result[name] for name in shown},
        }

    def close(self) -> None:
        """See to it that nothing of it is left, whatever happened."""
        with suppress(ProcessLookupError):
            self.driver.kill()
        self.driver.wait()
        deadline = time.monotonic() + 5.0
        while (left := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.05)
        for pid in left:  # they carry our mark
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._output.close()


def _is_left(name: str) -> bool:
    """Whether no process on this machine has this shared memory: another one's is not our leak."""
    for other in os.listdir("/proc"):
        if other.isdigit():
            with suppress(OSError):
                if f"/dev/shm/{name}" in Path("/proc", other, "maps").read_text():
                    return False
    return Path("/dev/shm", name).exists()


@contextmanager
def running(seed: int, workers: int, env_steps: int) -> Iterator[Run]:
    """Start a run, and leave nothing of it."""
    with tempfile.TemporaryDirectory(prefix="workerkill-") as folder:
        run = Run(Path(folder) / "trial", seed, workers, env_steps)
        try:
            yield run
        finally:
            run.close()


def one_trial(seed: int, kills: int, env_steps: int) -> dict[str, Any]:
    """Train with two workers, of which some are killed at seeded moments."""
    rng = random.Random(seed)
    got: dict[str, Any] = {"seed": seed, "asked_kills": kills, "kills": []}
    with running(seed, WORKERS, env_steps) as run:
        try:
            run.wait(run.env_step, "the first steps", START_WITHIN)
            # Moments are steps, not seconds: a kill is in mid-training on a machine of any speed.
            for at in sorted(rng.uniform(0.05, 0.85) * env_steps for _ in range(kills)):
                run.comes_to(at)
                time.sleep(rng.uniform(0.0, 0.05))
                got["kills"].append(run.kill(rng.randrange(WORKERS)))
            got |= run.end()
        except Broken as error:
            got["broken"] = str(error)
    return got


def judged(got: dict[str, Any], serial: dict[str, Any]) -> list[str]:
    """Return what a trial violated."""
    if "broken" in got:
        return [got["broken"]]
    wrong = [
        f"{name} is {got[name]}, in one process {serial[name]}"
        for name in ("policy_sha256", "env_steps", "train_iter", "eval_return_mean")
        if got[name] != serial[name]
    ]
    wrong += [
        f"{name}: {got[name]}" for name in ("left_processes", "left_shm", "left_files") if got[name]
    ]
    if len(got["kills"]) != got["asked_kills"]:
        wrong.append(f"{len(got['kills'])} of {got['asked_kills']} kills landed")
    return wrong


def say(text: str) -> None:
    """Tell how far it is."""
    print(text, file=sys.stderr, flush=True)


def tried(trials: int, kills: int, env_steps: int, lines: Path | None) -> dict[str, Any]:
    """Return the figures of many trials, with and without kills."""
    serial: dict[int, dict[str, Any]] = {}
    found: dict[bool, list[dict[str, Any]]] = {True: [], False: []}
    plan = [(seed, kills) for seed in range(trials)]
    plan += [(seed, 0) for seed in range(max(1, trials // 6))]
    started = time.monotonic()
    for seed, asked in plan:
        if seed not in serial:
            with running(seed, 0, env_steps) as run:
                serial[seed] = run.end()
        got = one_trial(seed, asked, env_steps)
        got["violations"] = judged(got, serial[seed])
        found[asked > 0].append(got)
        if lines is not None:
            with open(lines, "a") as file:
                file.write(json.dumps(got) + "\n")
        say(f"seed {seed}, {asked} kills: {got['violations'] or 'as in one process'}")
    figures: dict[str, Any] = {"env_steps": env_steps, "kills_per_run": kills}
    for faulty, name in ((True, "killed"), (False, "no_fault")):
        figures[name] = _figures(found[faulty])
    figures["seconds"] = round(time.monotonic() - started, 1)
    return figures


def _figures(trials: list[dict[str, Any]]) -> dict[str, Any]:
    kills = [kill for got in trials for kill in got["kills"]]
    whole = [got for got in trials if "broken" not in got]
    figures: dict[str, Any] = {
        "n": len(trials),
        "asked_kills": sum(got["asked_kills"] for got in trials),
        "landed": len(kills),
        "first_worker_killed": sum(kill["which"] == 0 for kill in kills),
        "violations": sum(bool(got["violations"]) for got in trials),
        "zero_bound_95": round(3 / len(trials), 4),
        "rc_0": sum(got.get("rc") == 0 for got in trials),
        "left_processes": sum(got["left_processes"] for got in whole),
        "left_shm": sum(got["left_shm"] for got in whole),
        "examples_of_violations": [got["violations"] for got in trials if got["violations"]][:5],
    }
    if whole:
        figures["run_seconds"] = summary([got["seconds"] for got in whole])
    for name in ("t_gone", "t_born", "t_recover"):
        if kills:
            values = [kill[name] for kill in kills]
            figures[name] = {**summary(values), "max": max(values)}
    return figures


# ---- memory over time


def soak(seconds: float, every: float, warm_up: float) -> dict[str, Any]:
    """Train for a time, and return how the memory of every process changed after a warm-up."""
    names: dict[int, str] = {}
    series: dict[int, list[tuple[float, float, float]]] = {}
    figures: dict[str, Any] = {"seconds": seconds, "every": every, "warm_up": warm_up}
    with running(0, WORKERS, ENDLESS) as run:
        try:
            run.wait(run.env_step, "the first steps", START_WITHIN)
            started = time.monotonic()
            while (now := time.monotonic() - started) < seconds:
                workers = run.workers()
                for pid in run.processes():
                    with suppress(OSError, KeyError):
                        series.setdefault(pid, []).append((now, *_megabytes(pid)))
                    names.setdefault(pid, _role(pid, run.driver.pid, workers))
                if run.driver.poll() is not None:
                    raise Broken(f"it ended with {run.driver.returncode}: {run.output()[-600:]}")
                time.sleep(every)
            figures["env_steps"] = run.env_step()
            figures["env_steps_per_s"] = round(figures["env_steps"] / seconds)
            run.driver.send_signal(signal.SIGTERM)
            figures["rc"] = run.driver.wait(30.0)
            if figures["rc"] != 128 + signal.SIGTERM:
                raise Broken(f"it left with {figures['rc']}, not 143")
            figures["violations"] = 0
        except (Broken, subprocess.TimeoutExpired) as error:
            figures |= {"broken": str(error), "violations": 1}
    processes = {}
    for number, (pid, points) in enumerate(sorted(series.items())):
        late = [each for each in points if each[0] >= warm_up]
        processes[f"{names[pid]} {number}"] = {
            "rss": _slope([(at, rss) for at, rss, _ in late]),
            "not_shared": _slope([(at, own) for at, _, own in late]),
        }
    return {**figures, "processes": processes}


def _megabytes(pid: int) -> tuple[float, float]:
    """Return what a process has in memory, and what of it is neither shared nor a file's."""
    text = Path(f"/proc/{pid}/status").read_text()
    sizes = dict(line.split(":", 1) for line in text.splitlines())
    rss, own = (float(sizes[name].split()[0]) / 1024 for name in ("VmRSS", "RssAnon"))
    return rss, own


def _role(pid: int, driver: int, workers: list[int]) -> str:
    if pid == driver:
        return "driver"
    if pid in workers:
        return f"worker.{workers.index(pid)}"
    return "helper"


def _slope(points: list[tuple[float, float]]) -> dict[str, Any]:
    """Return the slope of a line through the points, in MB per minute, and where they were."""
    if len(points) < 3:
        return {"points": len(points)}
    seconds, sizes = zip(*points, strict=True)
    line = statistics.linear_regression(seconds, sizes)
    rest = [size - line.intercept - line.slope * at for at, size in points]
    spread = statistics.pvariance(seconds) * len(points)
    error = (sum(each * each for each in rest) / (len(points) - 2) / spread) ** 0.5
    return {
        "points": len(points),
        "first_mb": round(sizes[0], 1),
        "last_mb": round(sizes[-1], 1),
        "max_mb": round(max(sizes), 1),
        "slope_mb_per_min": round(60 * line.slope, 4),
        "slope_error_95": round(60 * 1.96 * error, 4),
    }


def main() -> None:
    """Try what was asked for, print the figures, and write them where it was asked for."""
    parser = argparse.ArgumentParser(description="Kill PPO's workers in mid-training.")
    parser.add_argument("--trials", type=int, default=30, help="runs with a kill (30)")
    parser.add_argument("--env-steps", type=int, default=300_000, help="of each run (300000)")
    parser.add_argument("--kills-per-run", type=int, help="one run with so many kills, instead")
    parser.add_argument(
        "--soak", type=float, nargs="?", const=600.0, metavar="SECONDS",
        help="watch the memory of a run for so long (600), instead",
    )  # fmt: skip
    parser.add_argument("--every", type=float, default=3.0, help="seconds between looks (3)")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--lines", type=Path, help="add one JSON line per trial to this file")
    options = parser.parse_args()
    about = machine()
    if options.soak is not None:
        part, figures = "soak", soak(options.soak, options.every, min(60.0, options.soak / 4))
        violations = figures["violations"]
    else:
        many = options.kills_per_run
        part = "one_kill" if many is None else f"{many}_kills_in_one_run"
        trials, kills = (options.trials, 1) if many is None else (1, many)
        figures = tried(trials, kills, options.env_steps, options.lines)
        violations = figures["killed"]["violations"] + figures["no_fault"]["violations"]
    parts: dict[str, Any] = {}
    if options.json and options.json.exists():
        parts = json.loads(options.json.read_text())["parts"]
    parts[part] = {**figures, "machine": about, "commit": commit()}
    command = "python -m benchmarks.faults.worker_kills"
    write({"command": command, "workers": WORKERS, "parts": parts}, options.json)
    raise SystemExit(1 if violations else 0)


if __name__ == "__main__":
    main()
