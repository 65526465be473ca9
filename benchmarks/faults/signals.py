"""F1-F4: Ctrl-C and SIGTERM for the real command, once and twice, at every stage of a run.

    python -m benchmarks.faults.signals --json benchmarks/results/signal_faults.json

Run it from the repository. Every trial starts `muster train dqn` as a process of its own, waits for
a condition that it can see from outside, sends the signal at a seeded moment after it, and looks at
the exit code, at standard error and at the run directory. What has not ended after 30 s has failed.
What is left has to be resumed, unless the run directory proves that there was no save to lose.
A small version is in tests/recipes. Exit code 1 if anything was violated.
"""

import argparse
import json
import os
import platform
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.faults.children import end_with_harness
from benchmarks.faults.node_scene import SOURCE
from benchmarks.faults.scene import Tally

import muster
from muster.errors import MusterError
from muster.recipes.options import TrainOptions
from muster.run import RunDirectory

ROOT = Path(__file__).parents[2]
MUSTER = Path(sys.executable).with_name("muster")
TELLING = "benchmarks.faults.telling_env:Telling-v0"
TIMEOUT = 30.0
AT_ONCE = 2.0
"""Seconds that a second signal may take, without those in which others had the processor."""
FOR_EVER = 10**9
SMALL = {
    "--num-envs": 2,
    "--train-every": 32,
    "--updates-per-train": 4,
    "--learning-starts": 64,
    "--buffer-size": 5_000,
    "--stop-at": 1e9,
    "--eval-every": 0,
    "--eval-episodes": 2,
    "--env-steps": FOR_EVER,
}
Signal = signal.Signals
NEVER_SAVED = "refused, none was ever saved"
_COMPLETE = re.compile(r"step-[0-9]+")
_PARTIAL = re.compile(r"\.step-([0-9]+)\.partial-[0-9]+(?:-[0-9]+)?")


def never_saved(checkpoints: Path, first_due: int) -> bool:
    """Whether what is left proves that no checkpoint was ever complete there.

    The first save makes the directory, and saves of one run have rising steps. So there was none if
    there is no directory, or if nothing is in it but the unfinished first one. An empty directory
    proves nothing, and neither does an unfinished checkpoint of a later step: one that was complete
    may have been lost.

    Args:
        checkpoints: The directory of the checkpoints, as the process left it.
        first_due: The step at which the first one is due. One that ends a run may come before it.
    """
    try:
        names = set(os.listdir(checkpoints)) - {".lock"}
    except FileNotFoundError:
        return True
    partial = [_PARTIAL.fullmatch(name) for name in names]
    return bool(names) and all(found and int(found[1]) <= first_due for found in partial)


def _seconds_in_queue(pid: int) -> float:
    """Return for how long the main thread of a process could run, and others had the processor."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9


class Trial:
    """One run of the command, and what is sent to it.

    Args:
        place: A directory of its own; the run is in `run`.
        env: Id of the environment.
        environ: Further environment variables.
        options: Beside `SMALL`.
    """

    def __init__(
        self,
        place: Path,
        env: str = "CartPole-v1",
        environ: dict[str, Any] | None = None,
        options: dict[str, Any] | None = None,
    ) -> None:
        place.mkdir()
        self.run = place / "run"
        self.told = place / "told"
        self.env = env
        self.options = {**SMALL, **(options or {})}
        self.environ = {
            "PYTHONPATH": f"{SOURCE}:{ROOT}",
            "MUSTER_TELL": self.told,
            **(environ or {}),
        }
        self.started = time.monotonic()
        self._stderr = open(place / "stderr", "w+b")  # noqa: SIM115  # closed by `close`
        self.process = self._command({}, self._stderr)
        self.seconds_to_exit = self.seconds_in_queue = 0.0
        self.had_saved = False
        """Whether a complete checkpoint was there before the last signal."""

    def _command(self, more: dict[str, Any], stderr: Any) -> subprocess.Popen[bytes]:
        words = [MUSTER, "train", "dqn", self.env, "--run-dir", self.run]
        for name, value in {**self.options, **more}.items():
            words += [name, value] if value is not None else [name]
        environ = os.environ | {name: str(value) for name, value in self.environ.items()}
        return subprocess.Popen(
            list(map(str, words)),
            env=environ,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            preexec_fn=end_with_harness,
        )

    @property
    def alive(self) -> bool:
        """Whether the process has not ended yet."""
        return self.process.poll() is None

    def wait_until(self, condition: Callable[[], object]) -> bool:
        """Wait for something to be so; False if the process ended before, or the time is up."""
        deadline = time.monotonic() + TIMEOUT
        while not condition():
            if not self.alive or time.monotonic() > deadline:
                return False
            time.sleep(0.0005)
        return True

    def saved(self) -> Path | None:
        """The last checkpoint that is complete."""
        try:
            return RunDirectory.open(self.run).checkpoints.last()
        except MusterError:
            return None

    def saving(self) -> set[str]:
        """The names of checkpoints that are being written."""
        return {name for name in self._listed() if name.startswith(".step-")}

    def _listed(self) -> list[str]:
        try:
            return os.listdir(self.run / "checkpoints")
        except FileNotFoundError:
            return []

    def loops(self) -> bool:
        """Whether a loop has come to its end."""
        metrics = self.run / "metrics.jsonl"
        return metrics.exists() and metrics.stat().st_size > 0

    def send(self, number: Signal) -> bool:
        """Send a signal; False if there is nobody to get it."""
        alive = self.alive
        self.had_saved = any(map(_COMPLETE.fullmatch, self._listed()))
        self.process.send_signal(number)
        return alive

    def never_saved(self) -> bool:
        """Whether no checkpoint was ever complete: seen before the signal, proved by what is left.

        To be asked before anything else is done to the run directory.
        """
        every = int(self.options.get("--checkpoint-every", TrainOptions.checkpoint_every))
        loop = int(self.options["--train-every"])
        first_due = -(-every // loop) * loop
        return not self.had_saved and never_saved(self.run / "checkpoints", first_due)

    def end(self) -> tuple[int | None, str]:
        """Wait for the exit; return its code (None: it had to be killed) and what it complained."""
        code = self.process.poll()
        if code is None:
            code = self._wait_for_exit()
        self._stderr.seek(0)
        return code, self._stderr.read().decode(errors="replace")

    def _wait_for_exit(self) -> int | None:
        pid, started = self.process.pid, time.monotonic()
        queued = _seconds_in_queue(pid)
        # Not `Popen.wait`: the figures of a process are gone once it has been waited for.
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        while not (ended := os.waitid(os.P_PID, pid, flags)):
            if time.monotonic() - started > TIMEOUT:
                self.process.kill()
                break
            time.sleep(0.002)
        self.seconds_to_exit = time.monotonic() - started
        self.seconds_in_queue = _seconds_in_queue(pid) - queued
        return self.process.wait() if ended else None

    def close(self) -> None:
        """See to it that nothing of it is left."""
        self.process.kill()
        self.process.wait()
        self._stderr.close()

    def resumed(self) -> str:
        """Go on with what is there for a few loops: "resumed", "refused" in three lines, or not."""
        last = self.saved()
        step = int(last.name.removeprefix("step-")) if last else 0
        self.environ["MUSTER_SLOW_AFTER"] = FOR_EVER
        more = {"--resume": None, "--quiet": None, "--env-steps": step + 64, "--eval-episodes": 2}
        process = self._command(more, subprocess.PIPE)
        try:
            _, complaint = process.communicate(timeout=TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return "resuming hung"
        if process.returncode == 0:
            result = RunDirectory.open(self.run).read_result() or {}
            return "resumed" if result.get("env_steps", 0) >= step + 64 else "resumed elsewhere"
        three_lines = complaint.count(b"\n") == 3 and complaint.startswith(b"muster: ")
        return "refused" if process.returncode in (1, 2) and three_lines else "resuming failed"


@contextmanager
def _started(root: Path, number: int, **options: Any) -> Iterator[Trial]:
    trial = Trial(root / str(number), **options)
    try:
        yield trial
    finally:
        trial.close()


def _which(number: int) -> Signal:
    return (Signal.SIGINT, Signal.SIGTERM)[number % 2]


def _judge(
    trial: Trial, sent: Signal, tally: Tally, allowed: tuple[str, ...], **details: Any
) -> None:
    """Look at how a trial ended, and at what it left behind."""
    code, complaint = trial.end()
    tally.figures.setdefault("_seconds", []).append(trial.seconds_to_exit)
    none_to_lose = trial.never_saved()
    left = "nothing left" if not trial.run.exists() else trial.resumed()
    if left == "refused" and none_to_lose:
        left = NEVER_SAVED
    problems = []
    in_start = "Traceback" in complaint and "/muster/" not in complaint.replace(str(MUSTER), "")
    if in_start:
        # Python has its own handler until muster's first line has run.
        left = "in Python's own start"
    elif "Traceback" in complaint or "Exception ignored" in complaint:
        problems.append("a traceback")
    # Killed by the signal itself is the same code to a shell.
    if code not in (128 + sent, -sent):
        problems.append(f"exit code {code}")
    if left not in allowed and not in_start:
        problems.append(left)
    took = trial.seconds_to_exit - trial.seconds_in_queue
    if details.get("limit") and took > details["limit"]:
        problems.append(f"{took:.1f} s")
    if problems:
        details["complaint"] = complaint[-2000:]
    tally.add(left, not problems, signal=sent.name, problems=problems, **details)


def no_fault(root: Path, tally: Tally, count: int) -> None:
    """The same runs without a signal."""
    for number in range(count):
        with _started(
            root, number, options={"--env-steps": 640, "--checkpoint-every": 64}
        ) as trial:
            code, complaint = trial.end()
            ok = code == 0 and "Traceback" not in complaint and trial.resumed() == "resumed"
            tally.add("unharmed", ok, code=code, complaint=complaint[-500:])


def once(root: Path, tally: Tally, count: int, seed: int = 1) -> None:
    """F1, F2: a signal in the middle of training."""
    rng = random.Random(seed)
    for number in range(count):
        with _started(root, number) as trial:
            trial.wait_until(trial.loops)
            time.sleep(rng.uniform(0, 0.3))
            tally.counts["landed in training"] += trial.send(_which(number))
            _judge(trial, _which(number), tally, ("resumed",))


def twice(root: Path, tally: Tally, count: int, seed: int = 2) -> None:
    """F3: a second signal, while the loop that the first one waits for takes seconds."""
    rng = random.Random(seed)
    slow = {"MUSTER_SLOW_AFTER": 512}
    options = {"--train-every": 512, "--checkpoint-every": 256}  # a loop of 512 steps: 10 s
    for number in range(count):
        with _started(root, number, env=TELLING, environ=slow, options=options) as trial:
            trial.wait_until(trial.saved)
            time.sleep(rng.uniform(0, 0.3))
            trial.send(_which(number))
            time.sleep(rng.uniform(0.05, 0.5))
            tally.counts["landed in the first one's stop"] += trial.send(
                _which(number + number // 2)
            )
            _judge(trial, _which(number + number // 2), tally, ("resumed",), limit=AT_ONCE)


def at_start(root: Path, tally: Tally, count: int, seed: int = 3) -> None:
    """F4: a signal from the start of the process until its first loop is over."""
    rng = random.Random(seed)
    with _started(root, count) as trial:
        trial.wait_until(trial.loops)
        until = time.monotonic() - trial.started
    tally.figures["seconds_to_the_first_loop"] = round(until, 2)
    for number in range(count):
        with _started(root, number) as trial:
            moment = rng.uniform(0, until)
            time.sleep(max(0.0, trial.started + moment - time.monotonic()))
            tally.counts["landed before the first loop"] += trial.alive and not trial.loops()
            trial.send(_which(number))
            _judge(
                trial,
                _which(number),
                tally,
                ("nothing left", "resumed", NEVER_SAVED),
                moment=round(moment, 3),
            )


def while_saving(root: Path, tally: Tally, count: int, seed: int = 4) -> None:
    """F4: a signal while a checkpoint is being written; every other time a second one after it."""
    rng = random.Random(seed)
    landed = attempts = 0
    while landed < count and attempts < 4 * count:
        attempts += 1
        second = attempts % 4 >= 2
        sent = _which(attempts)
        with _started(root, attempts, options={"--checkpoint-every": 64}) as trial:
            # Every fifth one is the very first save, before which there is nothing to go back to.
            for _ in range(1 if attempts % 5 == 0 else rng.randrange(1, 30)):
                trial.wait_until(lambda: not trial.saving())
                trial.wait_until(trial.saving)
            seen = trial.saving()
            trial.send(sent)
            during = bool(seen & trial.saving())
            if second:
                time.sleep(rng.uniform(0, 0.003))
                trial.send(sent)
            landed += during
            tally.counts["landed in a save" if during else "landed between saves"] += 1
            tally.counts["with a second signal"] += second
            # One signal waits for the save in progress; only a second one may leave none behind.
            allowed = ("resumed", NEVER_SAVED) if second else ("resumed",)
            _judge(trial, sent, tally, allowed, second=second, limit=second and AT_ONCE)


def while_evaluating(root: Path, tally: Tally, count: int, seed: int = 5) -> None:
    """F4: a signal during the last evaluation, which would go on for minutes."""
    rng = random.Random(seed)
    options = {"--env-steps": 640, "--eval-episodes": 100_000}
    for number in range(count):
        with _started(root, number, env=TELLING, options=options) as trial:
            landed = trial.wait_until(trial.told.exists)
            time.sleep(rng.uniform(0, 0.5))
            tally.counts["landed in the evaluation"] += trial.send(_which(number)) and landed
            _judge(trial, _which(number), tally, ("resumed",), limit=AT_ONCE)


KINDS: dict[str, tuple[Callable[[Path, Tally, int], None], str]] = {
    "no fault": (no_fault, "unharmed"),
    "F1 F2 one signal in training": (once, "landed in training"),
    "F3 a second signal": (twice, "landed in the first one's stop"),
    "F4 during start-up": (at_start, "landed before the first loop"),
    "F4 during a save": (while_saving, "landed in a save"),
    "F4 during the last evaluation": (while_evaluating, "landed in the evaluation"),
}
"""What is tried, and the count that proves that it was."""


def attempt(kind: str, root: Path, count: int, trials: Path | None = None) -> dict[str, Any]:
    """Try one kind and return its report."""
    tally = Tally(kind, trials)
    trial, proof = KINDS[kind]
    trial(root, tally, count)
    seconds = tally.figures.pop("_seconds", None)
    if seconds:
        figures = {"p50": round(median(seconds), 3), "max": round(max(seconds), 3)}
        tally.figures["seconds_to_exit"] = figures
    return {**tally.report(), "landed": tally.counts[proof]}


def main() -> None:
    """Try everything, print a line for each kind, and write the summary."""
    parser = argparse.ArgumentParser(description="Send signals to muster train.")
    parser.add_argument("--count", type=int, default=30, help="trials of each kind (30)")
    parser.add_argument(
        "--only",
        help="only the kinds whose name begins so, such as F3; "
        "those of the --json file are kept for the others",
    )
    parser.add_argument("--json", type=Path, help="write the summary to this file")
    parser.add_argument("--trials", type=Path, help="add one JSON line per trial to this file")
    options = parser.parse_args()
    # A shell that starts this in the background has it ignore SIGINT, and so would the children.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    kinds: dict[str, Any] = {}
    if options.only and options.json and options.json.exists():
        kinds = json.loads(options.json.read_text())["kinds"]
    for kind in KINDS:
        if options.only and not kind.startswith(options.only):
            continue
        with tempfile.TemporaryDirectory() as root:
            kinds[kind] = found = attempt(kind, Path(root), options.count, options.trials)
        if options.only:
            found["command"] = f"--only '{options.only}' --count {options.count}, after the others"
        print(f"{kind}: n {found['trials']}, landed {found['landed']}, violations "
              f"{found['violations']} (95 %: below {found['zero_bound_95']}), "
              f"exit {found.get('seconds_to_exit')}", file=sys.stderr)  # fmt: skip
    summary = {
        "command": f"python -m benchmarks.faults.signals --count {options.count}",
        "muster": muster.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "trials": sum(found["trials"] for found in kinds.values()),
        "violations": sum(found["violations"] for found in kinds.values()),
        "kinds": kinds,
    }
    text = json.dumps(summary, indent=2, default=str)
    print(text)
    if options.json:
        options.json.write_text(text + "\n")
    raise SystemExit(1 if summary["violations"] else 0)


if __name__ == "__main__":
    main()
