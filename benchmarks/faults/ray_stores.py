"""K6: the object stores of all machines are full, with room on the disk that they spill to or none.

Another program of the cluster fills them: an actor on each machine puts arrays and keeps them. That
it landed is proved by what was spilled, or by the error that the actor got for want of room.
"""

import contextlib
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.faults.node_scene import Broken
from benchmarks.faults.ray_scene import Run, try_on
from benchmarks.machines import Machines

_HIDDEN = 128
"""Gradients of such networks are too large for Ray to send them by itself, without its store."""
_LOOPS = 120
_FILL_SECONDS = 60.0
_OBJECTS = 1920
"""Of 160 KiB each, in a store of 100 MiB: three times what there is room for, and no gap is left
that what a worker sends would fit into."""
_STALLED_SECONDS = 4.0

_HOG = """
import sys, time
import numpy as np
import ray
ray.init(address=sys.argv[1], log_to_driver=False, logging_level="ERROR")
count = int(sys.argv[3])

@ray.remote(num_cpus=0)
class Hog:
    def __init__(self):
        self.kept = []
    def fill(self, log):
        for _ in range(count):
            try:
                self.kept.append(ray.put(np.ones(160 << 10, np.uint8)))
            except ray.exceptions.RayError as error:
                print(type(error).__name__, file=open(log, "a"), flush=True)
                time.sleep(1)
            else:
                print("kept", file=open(log, "a"), flush=True)

machines = [f"machine{number}" for number in range(int(sys.argv[2]))]
hogs = [Hog.options(resources={name: 0.1}).remote() for name in machines]
ray.get([hog.fill.remote(f"{sys.argv[4]}{number}") for number, hog in enumerate(hogs)])
time.sleep(600)
"""


@contextlib.contextmanager
def _disk(megabytes: int | None) -> Iterator[Path]:
    """Yield a directory to spill to, on a disk of its own if it is to be small."""
    with tempfile.TemporaryDirectory(prefix="ms", dir="/tmp") as name:
        if megabytes is not None:
            size = f"size={megabytes}m"
            subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", name], check=True)
        try:
            yield Path(name)
        finally:
            if megabytes is not None:
                subprocess.run(["umount", "-l", name], check=True)


class _Hog:
    """What an actor has put so far, by the lines that it writes."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self.kept = 0
        self._since = time.monotonic()

    def is_done(self, is_stuck: object) -> bool:
        """Whether it has put all, or gets no further, as it should."""
        with contextlib.suppress(OSError):
            kept = self._log.read_text().count("kept")
            if kept != self.kept:
                self.kept, self._since = kept, time.monotonic()
        if not is_stuck:
            return self.kept == _OBJECTS
        return 0 < self.kept < _OBJECTS and time.monotonic() - self._since > _STALLED_SECONDS


def _filled(seed: int, faulty: bool, megabytes: int | None) -> dict[str, Any]:
    """Train on two machines whose stores become full on the way."""
    hogging: list[subprocess.Popen[str]] = []

    def make_room() -> dict[str, Any]:
        for each in hogging:
            each.kill()
            each.wait()
        return {}

    def fault(run: Run, rng: random.Random) -> dict[str, Any]:
        log = run.run.parent / "hog"
        command = [sys.executable, "-c", _HOG, machines.address, "2", str(_OBJECTS), str(log)]
        with log.open("w") as output:
            hogging.append(machines.start(command, stdout=output, stderr=output))
        hogs = [_Hog(Path(f"{log}{number}")) for number in range(2)]
        wanted = "full disks" if megabytes else "full stores"
        run.wait(lambda: all(hog.is_done(megabytes) for hog in hogs), wanted, _FILL_SECONDS)
        spilled = sum(file.stat().st_size for file in place.rglob("*") if file.is_file())
        if spilled < (megabytes or 100) << 19:
            raise Broken(f"only {spilled} bytes were spilled: the fault did not land")
        return {"spilled_mb": spilled >> 20, "kept": [hog.kept for hog in hogs]}

    with _disk(megabytes) as place, Machines([1, 1], spill_to=place) as machines:
        return try_on(
            seed,
            fault if faulty else None,
            make_room,
            machines=machines,
            loops=_LOOPS,
            hidden=_HIDDEN,
        )


def stores_full(seed: int, faulty: bool) -> dict[str, Any]:
    """The object stores of both machines are filled three times over; there is room on the disk."""
    return _filled(seed, faulty, None)


def disk_full(seed: int, faulty: bool) -> dict[str, Any]:
    """The same, and the disk that they spill to is full, too."""
    return _filled(seed, faulty, 48)


KINDS = {"K6-store": stores_full, "K6-disk": disk_full}
