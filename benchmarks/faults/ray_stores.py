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
_FILL_SECONDS = 60.0
_LARGE, _SMALL = 60, 480
"""Objects of 4 MiB and of 160 KiB, in a store of 100 MiB: three times what there is room for. The
small ones come last, so that no gap is left that what a worker sends would fit into."""
_STALLED_SECONDS = 4.0

_HOG = """
import sys, time
import numpy as np
import ray
ray.init(address=sys.argv[1], log_to_driver=False, logging_level="ERROR")
log, machines, large, small = sys.argv[2], *map(int, sys.argv[3:])

@ray.remote(num_cpus=0)
class Hog:
    def __init__(self):
        self.kept = []
    def put(self, size, log):
        try:
            self.kept.append(ray.put(np.ones(size, np.uint8)))
        except ray.exceptions.RayError:
            return False
        print(size, file=log, flush=True)
        return True
    def fill(self, path):
        with open(path, "w") as log:
            for _ in range(large):
                if not self.put(4 << 20, log):
                    break
            print("small", file=log, flush=True)
            for _ in range(small):
                while not self.put(160 << 10, log):
                    time.sleep(1)
    def ready(self):
        pass

names = [f"machine{number}" for number in range(machines)]
hogs = [Hog.options(resources={name: 0.1}).remote() for name in names]
ray.get([hog.ready.remote() for hog in hogs])
print("ready", flush=True)
sys.stdin.readline()
ray.get([hog.fill.remote(f"{log}{number}") for number, hog in enumerate(hogs)])
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
    """What the actor of one machine has put so far, by the lines that it writes."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._said = ""
        self.since = time.monotonic()
        """When it wrote last."""

    @property
    def kept(self) -> int:
        """How many objects it has."""
        return sum(line.isdigit() for line in self._said.splitlines())

    def has_filled(self, has_disk: bool) -> bool:
        """Whether it has put all, or, if the disk has no room for that, is stuck at the small."""
        with contextlib.suppress(OSError):
            if (said := self._log.read_text()) != self._said:
                self._said, self.since = said, time.monotonic()
        if has_disk:
            return self.kept == _LARGE + _SMALL
        return "small" in self._said and time.monotonic() - self.since > _STALLED_SECONDS


@contextlib.contextmanager
def _hogging(machines: Machines, log: Path) -> Iterator["subprocess.Popen[str]"]:
    """Have a program on the cluster that fills the stores when it is told to by a line."""
    words = [log, len(machines.machines), _LARGE, _SMALL]
    command = [sys.executable, "-c", _HOG, machines.address, *map(str, words)]
    hog = machines.start(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield hog
    finally:
        hog.kill()
        hog.communicate()


def _filled(seed: int, faulty: bool, megabytes: int | None) -> dict[str, Any]:
    """Train on two machines whose stores become full on the way."""
    has_disk = megabytes is None

    def fault(run: Run, rng: random.Random) -> dict[str, Any]:
        assert hog.stdin is not None and hog.stdout is not None
        if hog.stdout.readline() != "ready\n":
            raise Broken("the program that fills stores did not begin")
        hog.stdin.write("fill\n")
        hog.stdin.flush()
        each = [_Hog(Path(f"{log}{number}")) for number in machines.machines]
        what = "full stores" if has_disk else "full disks"
        run.wait(lambda: all([hog.has_filled(has_disk) for hog in each]), what, _FILL_SECONDS)
        spilled = sum(file.stat().st_size for file in place.rglob("*") if file.is_file())
        if spilled < (megabytes or 100) << 19:
            raise Broken(f"only {spilled} bytes were spilled: the fault did not land")
        at = max(hog.since for hog in each)
        return {"at": at, "spilled_mb": spilled >> 20, "kept": [hog.kept for hog in each]}

    def make_room() -> dict[str, Any]:
        hog.kill()
        return {}

    with (
        _disk(megabytes) as place,
        tempfile.TemporaryDirectory(prefix="hogs-") as logs,
        # New ones for each trial: what was spilled for a program that is gone stays on the disk.
        Machines([1, 1], spill_to=place) as machines,
        _hogging(machines, log := Path(logs, "hog")) as hog,
    ):
        return try_on(
            seed,
            fault if faulty else None,
            make_room,
            must_go_on=has_disk,
            machines=machines,
            loops=72 if has_disk else 36,  # it has to be there when the stores are full
            hidden=_HIDDEN,
        )


def stores_full(seed: int, faulty: bool) -> dict[str, Any]:
    """The object stores of both machines are filled three times over; there is room on the disk."""
    return _filled(seed, faulty, None)


def disk_full(seed: int, faulty: bool) -> dict[str, Any]:
    """The same, and the disk that they spill to is full, too."""
    return _filled(seed, faulty, 48)


KINDS = {"K6-store": stores_full, "K6-disk": disk_full}
