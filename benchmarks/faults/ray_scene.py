"""One trial of ray_faults.py: `muster train ppo` on Ray as a process, the fault, the verdict.

Whatever happens to Ray, one of two things has to come of it: the run goes on, and ends with exactly
the steps and the weights of the serial run of its seed; or it ends within 60 s with exit code 1 and
three lines, and the same command with --resume gives those steps and weights. Nothing may be left.
"""

import functools
import json
import os
import random
import re
import shutil
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
from benchmarks.faults.exposed import MARK, processes
from benchmarks.faults.node_scene import ROOT, SOURCE, Broken
from benchmarks.machines import Machines

SEEDS = 4
"""Of runs: trials share them, because each takes a serial run to be compared with."""
LOOP = 8 * 128
LOOPS = 120
START_WITHIN = 180.0
STILL_WITHIN = 60.0
"""Seconds without a step and without an end that are a hang."""
END_WITHIN = 400.0
GONE_WITHIN = 20.0
KEEPERS_GONE_WITHIN = 40.0
"""A node actor without a head to end it leaves by itself, after 30 s."""
NODE, KEEPER = "muster.engines.ray.process", "ray::NodeActor"
_INJECTED = re.compile(r"^(\[.*(rpc_chaos|Inject RPC)|RAY_testing_).*\n", re.M)
"""What Ray says of faults that it was told to make."""
_THREE_LINES = re.compile(r"muster: [^\n]+\n  why: [^\n]+\n  try: [^\n]+\n")


def train(seed: int, run: Path, size: tuple[int, int], *more: str) -> list[str]:
    """Return the command of a run that evaluates and saves on its way.

    Args:
        seed: Of the run.
        run: Its directory.
        size: How many rollouts, and the width of both layers of the networks.
        more: More options.
    """
    loops, hidden = size
    options = {
        "--seed": seed,
        "--env-steps": loops * LOOP,
        "--stop-at": 1e9,
        "--eval-every": 40 * LOOP,
        "--eval-episodes": 2,
        "--checkpoint-every": 8 * LOOP,
        "--run-dir": run,
    }
    words = [sys.executable, "-m", "muster.cli.main", "train", "ppo", "CartPole-v1", "--quiet"]
    words += [str(word) for pair in options.items() for word in pair]
    return [*words, "--hidden", str(hidden), str(hidden), *more]


class Run:
    """One run of the command.

    Args:
        place: A directory of its own, that is there.
        seed: Of the run.
        more: More options.
        machines: The cluster it runs on; None for one of its own.
        number: The machine that it is started on.
        environment: More variables.
        loops: How many rollouts it has.
        hidden: Width of both layers of its networks.
    """

    def __init__(
        self,
        place: Path,
        seed: int,
        *more: str,
        machines: Machines | None = None,
        number: int = 0,
        environment: dict[str, str] | None = None,
        loops: int = LOOPS,
        hidden: int = 64,
    ) -> None:
        self.run = place / "run"
        self.size = loops, hidden
        self.machines = machines
        self.mark = uuid.uuid4().hex
        self.output_file = place / f"output-{self.mark[:6]}"
        words = train(seed, self.run, self.size, "--engine", "ray", "--workers", "2", *more)
        # What other programs of this machine do to its memory and cores is not what is tried here.
        variables = {
            "PYTHONPATH": f"{SOURCE}:{ROOT}",
            "RAY_memory_monitor_refresh_ms": "0",
            "RAY_worker_niceness": "0",
            MARK: self.mark,
            **(environment or {}),
        }
        if machines is not None:
            words += ["--address", machines.address]
            words = machines.machines[number].within(words)
            variables = machines.environment(**variables)
        with self.output_file.open("wb") as output:
            self.driver = subprocess.Popen(
                words,
                cwd=ROOT,
                env={**os.environ, **variables},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                preexec_fn=end_with_harness,
            )

    # ---- what is there to be seen

    def lines(self) -> int:
        """Return how many lines of metrics there are."""
        with suppress(OSError):
            return (self.run / "metrics.jsonl").read_bytes().count(b"\n")
        return 0

    def output(self) -> str:
        """Return what was printed."""
        return self.output_file.read_text(errors="replace")

    def processes(self, word: str = "") -> list[int]:
        """Return the live processes of this run whose command has a word in it."""
        return [pid for pid in processes(self.mark) if word in command_of(pid)]

    def wait(self, condition: Callable[[], Any], what: str, seconds: float) -> Any:
        """Return what is true in the end; broken if nothing is in time, or the run has ended."""
        deadline = time.monotonic() + seconds
        while not (value := condition()):
            if self.driver.poll() is not None:
                raise Broken(f"it left with {self.driver.returncode} before: {what}: {self.said()}")
            if time.monotonic() > deadline:
                raise Broken(f"waited {seconds:g} s for: {what}")
            time.sleep(0.01)
        return value

    def said(self) -> str:
        """Return the end of what was printed."""
        return self.output()[-800:]

    def comes_to_the_moment(self, rng: random.Random) -> None:
        """Wait for a seeded moment in mid-training, from the first checkpoint on."""
        self.wait(saved_in(self.run).exists, "training to begin", START_WITHIN)
        at = self.lines() + rng.randrange(1, 4)  # each is of four rollouts
        self.wait(lambda: self.lines() >= at, "the moment of the fault", START_WITHIN)
        time.sleep(rng.uniform(0.0, 0.2))

    def begins_or_ends(self) -> bool:
        """Wait for the first line of metrics; False if the run ends before."""
        deadline = time.monotonic() + START_WITHIN
        while not self.lines():
            if self.driver.poll() is not None:
                return False
            if time.monotonic() > deadline:
                raise Broken(f"it hangs: training did not begin in {START_WITHIN:g} s")
            time.sleep(0.01)
        return True

    # ---- what comes of it

    def verdict(self, seed: int, since: float) -> dict[str, Any]:
        """Wait for the end, and return what came of it, with all promises checked.

        Args:
            seed: Of the run.
            since: When the fault was, by time.monotonic.
        """
        still = self._watch_it_end(since)
        code, took = self.driver.returncode, time.monotonic() - since
        if code == 0:
            check_result(self.run, seed, self.size)
            return {"went_on": 1, "t_still": still, "t_end": took}
        if took > STILL_WITHIN:
            raise Broken(f"it ended {took:.0f} s after the fault: {self.said()}")
        said = _INJECTED.sub("", self.output())
        if code != 1 or not _THREE_LINES.fullmatch(said):
            raise Broken(f"it left with {code} and this: {self.output()[:3000]}")
        return {"ended": 1, "t_end": took, "said": said.splitlines()[1].strip()}

    def _watch_it_end(self, since: float) -> float:
        """Return for how long nothing moved at most."""
        still, seen, at = 0.0, self.lines(), since
        while self.driver.poll() is None:
            if (lines := self.lines()) != seen:
                still, seen, at = max(still, time.monotonic() - at), lines, time.monotonic()
            # The last line is written before the last evaluation, and the end of Ray.
            if time.monotonic() - at > STILL_WITHIN:
                raise Broken(f"it hangs: nothing for {STILL_WITHIN:g} s; it said: {self.said()}")
            if time.monotonic() - since > END_WITHIN:
                raise Broken(f"it did not end in {END_WITHIN:g} s")
            time.sleep(0.02)
        return max(still, time.monotonic() - at)

    def leaves_nothing(self, seconds: float, *words: str) -> None:
        """Check that no process of it is left.

        Args:
            seconds: That they have for it.
            words: What the commands of its processes on machines of the cluster have in them.
        """
        deadline = time.monotonic() + seconds
        while left := [*self.processes(), *self._on_machines(words)]:
            if time.monotonic() > deadline:
                raise Broken(f"left behind: {[command_of(pid)[:60] for pid in left]}")
            time.sleep(0.05)

    def _on_machines(self, words: tuple[str, ...]) -> list[int]:
        machines = self.machines.machines.values() if self.machines is not None else ()
        pids = (pid for machine in machines for pid in machine.pids())
        return [pid for pid in pids if any(word in command_of(pid) for word in words)]

    def close(self) -> None:
        """See to it that nothing of it is left, whatever happened."""
        with suppress(ProcessLookupError):
            self.driver.kill()
        self.driver.wait()
        for pid in self.processes():  # they carry our mark
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def command_of(pid: int) -> str:
    """Return a process's command; nothing for one that has ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return ""


def saved_in(run: Path) -> Path:
    """Return the file that names a run's last checkpoint."""
    return run / "checkpoints" / "last.json"


def result_of(run: Path) -> tuple[int, str]:
    """Return steps and weights of a run."""
    result = json.loads((run / "result.json").read_text())
    return result["env_steps"], result["policy_sha256"]


@functools.cache
def serial(seed: int, size: tuple[int, int]) -> tuple[int, str]:
    """Return steps and weights of the serial run of a seed."""
    with tempfile.TemporaryDirectory(prefix="serial-") as folder:
        run = Path(folder) / "run"
        subprocess.run(
            train(seed, run, size, "--workers", "0"),
            check=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": f"{SOURCE}:{ROOT}"},
            stdout=subprocess.DEVNULL,
            timeout=END_WITHIN,
        )
        return result_of(run)


def check_result(run: Path, seed: int, size: tuple[int, int]) -> None:
    """Check a run's steps and weights against the serial run of its seed."""
    got, wanted = result_of(run), serial(seed, size)
    if got != wanted:
        raise Broken(
            f"it has {got[0]} steps and {got[1][:12]}, serial {wanted[0]}, {wanted[1][:12]}"
        )


@contextmanager
def running(place: Path, seed: int, *more: str, **options: Any) -> Iterator[Run]:
    """Start a run, and leave nothing of it."""
    run = Run(place, seed, *more, **options)
    try:
        yield run
    finally:
        run.close()


def resumes(place: Path, seed: int, **options: Any) -> float:
    """Go on with a run that has ended, and return how long that took; it must come out right.

    One that ended before its first checkpoint has nothing to go on with, and is begun anew.
    """
    started = time.monotonic()
    is_saved = saved_in(place / "run").exists()
    if not is_saved:
        shutil.rmtree(place / "run", ignore_errors=True)
    with running(place, seed, *(["--resume"] if is_saved else []), **options) as run:
        try:
            run.driver.wait(END_WITHIN)
        except subprocess.TimeoutExpired:
            raise Broken(f"the resumed run did not end in {END_WITHIN:g} s") from None
        if run.driver.returncode:
            raise Broken(f"the resumed run left with {run.driver.returncode}: {run.said()}")
        check_result(run.run, seed, run.size)
    return time.monotonic() - started


def try_on(
    seed: int,
    fault: Callable[[Run, random.Random], dict[str, Any]] | None,
    again: Callable[[], dict[str, Any]] = dict,
    from_the_start: bool = False,
    must_go_on: bool = False,
    **options: Any,
) -> dict[str, Any]:
    """Train once, with a fault at a seeded moment or without one, and check all promises.

    Args:
        seed: Of the trial: of the moment, and of what the fault is.
        fault: Does it, proves that it landed, and returns figures, with `at` the moment from which
            it was there, if that was not at once; None for no fault.
        again: Makes things ready for the resumed run, and returns its options, if they are others.
        from_the_start: Whether it is in force already when the run begins.
        must_go_on: Whether it is no reason to end.
        options: Of the run.
    """
    rng = random.Random(seed)
    seed %= SEEDS
    with tempfile.TemporaryDirectory(prefix="ray-fault-") as folder:
        place = Path(folder)
        since = time.monotonic()
        with running(place, seed, **options) as run:
            if not from_the_start:
                run.comes_to_the_moment(rng)
            if not from_the_start or run.begins_or_ends():
                since = time.monotonic()
            got = {} if fault is None else {"landed": 1, **fault(run, rng)}
            got.update(run.verdict(seed, got.pop("at", since)))
            run.leaves_nothing(GONE_WITHIN, NODE)
        if "ended" in got and must_go_on:
            raise Broken(f"the run ended, though there was no need to: {got['said']}")
        if "ended" in got:
            got["t_resume"] = resumes(place, seed, **{**options, **again()})
        run.leaves_nothing(KEEPERS_GONE_WITHIN, NODE, KEEPER)
    return got
