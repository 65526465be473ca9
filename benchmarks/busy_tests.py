"""The test suite beside busy processes: whether a loaded machine makes any test fail.

    python -m benchmarks.busy_tests --busy 8 --json benchmarks/results/busy_tests.json

Starts the busy processes at the suite's own priority, runs `make test`, and ends them. A busy
process is an endless loop, or with `--work FILE` one of the commands in that file, a line each: so
the load can do something useful. A command that ends is replaced by an endless loop.
"""

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from benchmarks.rounds import machine, write

LOOP = [sys.executable, "-c", "while True: pass"]
CLOSING = re.compile(r"(\d+) (passed|failed|skipped|errors?)\b")


class BusyProcesses:
    """Keeps a number of processes busy until `stop`."""

    def __init__(self, commands: list[list[str]]) -> None:
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._running: list[subprocess.Popen[bytes]] = []
        self.replaced = 0
        """Commands that ended, and were replaced by an endless loop."""
        self._threads = [
            threading.Thread(target=self._keep_busy, args=(each,)) for each in commands
        ]
        for thread in self._threads:
            thread.start()

    def _keep_busy(self, command: list[str]) -> None:
        while True:
            with self._lock:
                if self._stopping.is_set():
                    return
                process = subprocess.Popen(
                    command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
                )
                self._running.append(process)
            process.wait()
            with self._lock:
                self._running.remove(process)
                self.replaced += not self._stopping.is_set()
            command = LOOP

    def stop(self) -> None:
        """Ask every process to end, and wait until they have."""
        with self._lock:
            self._stopping.set()
            for process in self._running:
                process.terminate()
        for thread in self._threads:
            thread.join()


def run_tests(command: list[str]) -> dict[str, Any]:
    """Run the tests and return their counts, their time and the names of those that failed."""
    started = time.monotonic()
    with tempfile.TemporaryFile("w+") as output:
        code = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT).returncode
        output.seek(0)
        lines = output.read().splitlines()
    closing = next((line for line in reversed(lines) if CLOSING.search(line)), "")
    return {
        "exit_code": code,
        "minutes": round((time.monotonic() - started) / 60, 1),
        "counts": {word: int(count) for count, word in CLOSING.findall(closing)},
        "failed": [line for line in lines if line.startswith(("FAILED", "ERROR"))],
    }


def main() -> None:
    """Run the tests beside busy processes, print JSON, and write it where it was asked for."""
    parser = argparse.ArgumentParser(description="Run the tests on a busy machine.")
    parser.add_argument("--busy", type=int, default=8, help="busy processes (8)")
    parser.add_argument("--work", type=Path, help="file of commands that keep busy, a line each")
    parser.add_argument("--tests", default="make test", help="command of the tests (make test)")
    parser.add_argument("--json", type=Path, help="also write the result to this file")
    options = parser.parse_args()
    given = [] if options.work is None else options.work.read_text().splitlines()
    commands = [shlex.split(line) for line in given[: options.busy] if line.strip()]
    commands += [LOOP] * (options.busy - len(commands))
    about = machine()
    busy = BusyProcesses(commands)
    try:
        time.sleep(60)  # until the load average tells
        load = os.getloadavg()[0]
        result = run_tests(shlex.split(options.tests))
    finally:
        busy.stop()
    write(
        {
            "command": f"python -m benchmarks.busy_tests --busy {options.busy}"
            + (" --work FILE" if options.work else ""),
            **about,
            "load_of_busy_processes": round(load, 2),
            "commands_replaced_by_loops": busy.replaced,
            **result,
        },
        options.json,
    )
    raise SystemExit(result["exit_code"])


if __name__ == "__main__":
    main()
