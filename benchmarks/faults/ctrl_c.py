"""Ctrl-C at every moment of a command's first seconds, for every verb and engine.

    python -m benchmarks.faults.ctrl_c --step 0.1 --json benchmarks/results/ctrl_c.json
    python -m benchmarks.faults.ctrl_c --step 0.1 --after 5 --first 10 --only eval bench --jobs 5

A command is the foreground job of a terminal of its own, and the terminal sends Ctrl-C to all of
the job. It must leave within some seconds with code 130 (or have ended by itself before), say no
traceback, and leave no process behind. What it started is found by a variable in its environment.
With --jobs, several moments of one kind are tried at the same time; commands that share the cores
start more slowly, so the same moments find them earlier in their start.
"""

import argparse
import fcntl
import json
import os
import platform
import pty
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import termios
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.faults.children import end_with_harness
from benchmarks.faults.node_scene import ROOT, SOURCE
from benchmarks.faults.scene import Tally

import muster
from muster.recipes.algorithms import ALGORITHMS, configuration_of

MARK = "MUSTER_CTRL_C_TRIAL"
WITHIN = 20.0
_ONE_AT_A_TIME = threading.Lock()
_LONG = ["--env-steps", "100000000", "--stop-at", "501", "--eval-every", "0", "--run-dir", "run"]


def _train(algo: str, *more: str, serial: bool = False) -> list[str]:
    env = "Pendulum-v1" if algo == "sac" else "CartPole-v1"
    config: Any = configuration_of(algo)
    in_step = config.PROGRAM == "in_step"  # else nodes have roles, three at least
    workers = "0" if serial else "2" if in_step else "3"
    return ["train", algo, env, "--workers", workers, *more, *_LONG]


KINDS: dict[str, list[str]] = {
    **{f"train {algo}": _train(algo) for algo in ALGORITHMS},
    **{f"train {algo}, serial": _train(algo, serial=True) for algo in ALGORITHMS},
    **{f"train {algo} on ray": _train(algo, "--engine", "ray") for algo in ALGORITHMS},
    "resume": ["resume", "done", "--env-steps", "100000000", "--stop-at", "501"],
    "eval": ["eval", "done", "--episodes", "100000"],
    "play": ["play", "done", "--episodes", "100000", "--video", "x.mp4"],
    "bench": ["bench", "ppo", "CartPole-v1", "--seconds", "60"],
    "doctor": ["doctor", "CartPole-v1"],
}


def in_a_terminal(words: list[str], folder: Path, mark: str) -> tuple[Any, int]:
    """Start a command as the foreground job of a new terminal; return it, and the other end."""
    ours, theirs = pty.openpty()
    started = subprocess.Popen(
        [sys.executable, "-m", "muster", *words],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": f"{SOURCE}:{ROOT}", MARK: mark},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=_be_the_foreground_job,
    )
    os.close(theirs)
    return started, ours


def _be_the_foreground_job() -> None:
    """Take the terminal, and hear Ctrl-C also where the harness itself runs in the background."""
    end_with_harness()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def left(mark: str) -> list[int]:
    """Return the processes of a trial that are there."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                if state != "Z" and wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def _is_of_python_alone(text: str) -> bool:
    """Whether a traceback shows nothing but what Python runs before a program's first line."""
    files = re.findall(r'File "([^"]+)"', text)
    own = [name.startswith("<frozen ") or "/encodings/" in name for name in files]
    return "KeyboardInterrupt" in text and bool(files) and all(own)


def one_trial(kind: str, moment: float, done: Path, tally: Tally) -> bool:
    """Press Ctrl-C once at a moment; whether the command was still there."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copytree(done, folder / "done")
        mark = f"{os.getpid()}-{kind}-{moment}"
        process, terminal = in_a_terminal(KINDS[kind], folder, mark)
        seen = bytearray()

        def read() -> None:
            while True:
                try:
                    data = os.read(terminal, 65536)
                except OSError:
                    return
                if not data:
                    return
                seen.extend(data)

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        try:
            process.wait(moment)
            landed = False
        except subprocess.TimeoutExpired:
            landed = True
            os.write(terminal, b"\x03")
        started = time.monotonic()
        try:
            code = process.wait(WITHIN)
        except subprocess.TimeoutExpired:
            code = None
        seconds = time.monotonic() - started
        until = time.monotonic() + 5.0
        while (others := left(mark)) and time.monotonic() < until:
            time.sleep(0.05)
        for pid in others:
            os.kill(pid, signal.SIGKILL)
        if code is None:
            process.kill()
            process.wait()
        os.close(terminal)
        reader.join(5)
        text = seen.decode(errors="replace")
        problems = []
        # Before Python has begun, or once it is leaving, the signal itself ends it; a shell
        # says 130 to that as well.
        allowed = (130, -signal.SIGINT) if landed else (0,)
        if code not in allowed and not _is_of_python_alone(text):
            problems.append(f"code {code}")
        if ("Traceback" in text or "Error:" in text) and not _is_of_python_alone(text):
            problems.append("a traceback")
        if others:
            problems.append(f"{len(others)} processes left")
        outcome = "left with 130" if landed else "had ended by itself"
        if _is_of_python_alone(text):
            outcome = "Python had not come to muster's first line"
        with _ONE_AT_A_TIME:
            tally.add(
                "; ".join(problems) or outcome,
                not problems,
                moment=moment,
                seconds=round(seconds, 2),
                **({"said": text[-800:]} if problems else {}),
            )
    return landed


def attempt(
    kind: str, step: float, after: float, first: float, done: Path, jobs: int
) -> dict[str, Any]:
    """Try one kind at every moment of some seconds, until it ends by itself before.

    Not at 0: then Python itself is still starting, and has not come to muster's first line.
    """
    tally = Tally(kind)
    ended = threading.Event()

    def try_at(moment: float) -> None:
        if not ended.is_set() and not one_trial(kind, moment, done, tally):
            ended.set()

    numbers = range(round(after / step) + 1, round(first / step) + 1)
    # A child ends with the thread that started it: these live as long as the pool.
    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(try_at, [number * step for number in numbers]))
    return tally.report()


def main() -> None:
    """Try every kind, print a line for each, and write the summary."""
    parser = argparse.ArgumentParser(description="Press Ctrl-C at every moment of a command.")
    parser.add_argument("--step", type=float, default=0.1, help="seconds between moments (0.1)")
    parser.add_argument("--first", type=float, default=15.0, help="of the first so many (15)")
    parser.add_argument("--after", type=float, default=0.0, help="but not of the first so many (0)")
    parser.add_argument("--only", nargs="+", choices=list(KINDS), help="only these")
    parser.add_argument("--jobs", type=int, default=1, help="so many trials at a time (1)")
    parser.add_argument("--json", type=Path, help="write the summary to this file")
    options = parser.parse_args()
    found: dict[str, Any] = {}
    if options.json and options.json.exists():
        found = json.loads(options.json.read_text())["kinds"]
    violations = 0
    with tempfile.TemporaryDirectory() as folder:
        done = Path(folder) / "done"
        # Their kernels are compiled by these runs, which takes as long as many trials at a time.
        small: dict[str, Any] = {"workers": 0, "eval_episodes": 1, "quiet": True}
        muster.train("ppo", "CartPole-v1", env_steps=2_048, run_dir=str(done), **small)
        for algo, env in (("dqn", "CartPole-v1"), ("sac", "Pendulum-v1")):
            place = str(Path(folder) / algo)
            muster.train(algo, env, env_steps=512, learning_starts=256, run_dir=place, **small)
        for kind in options.only or list(KINDS):
            name = f"{kind}, {options.after:g} to {options.first:g} s, every {options.step:g} s"
            found[name] = attempt(
                kind, options.step, options.after, options.first, done, options.jobs
            )
            violations += found[name]["violations"]
            print(f"{name}: {found[name]}"[:1500], file=sys.stderr, flush=True)
            if options.json:
                summary = {
                    "command": "python -m benchmarks.faults.ctrl_c",
                    "muster": muster.__version__,
                    "python": platform.python_version(),
                    "kinds": found,
                }
                options.json.write_text(json.dumps(summary, indent=2) + "\n")
    raise SystemExit(1 if violations else 0)


if __name__ == "__main__":
    main()
