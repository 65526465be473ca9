"""F7-F9, G5: what a machine has, lacks or still holds; and a thousand runs in one process."""

import contextlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from benchmarks.faults.node_program import Notes, open_files
from benchmarks.faults.node_scene import Broken, Trial, trial

from muster import Parallel, Task

Outcome = dict[str, Any]
CYCLES, FIRST = 1000, 50


def _start_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]


def _dead_pid() -> int:
    child = subprocess.Popen(["true"])
    child.wait()
    return child.pid


def stale_directories(seed: int, faulty: bool) -> Outcome:
    """F7: directories of runs that were killed are removed by the next run; others stay."""
    with trial(seed) as living:
        living.ready()
        root = living.runtime
        (of_living,) = root.glob("muster-*")
        me = os.getpid()
        stale, kept = [], [of_living, root / f"muster-{me}-{_start_of(me)}-mine"]
        if faulty:
            stale = [
                root / f"muster-{_dead_pid()}-12345-dead",
                root / f"muster-{me}-{int(_start_of(me)) - 1}-an-id-used-again",
            ]
            with trial(seed + 1000, runtime=root) as killed:
                killed.ready()
                stale += [path for path in root.glob("muster-*") if path not in (*kept, *stale)]
                killed.driver.kill()
                killed.driver.wait()
                killed.all_gone(5.0)
            kept += [root / "muster-notes", root / "muster-x-y-z", root / "other"]
            link = root / f"muster-{_dead_pid()}-12345-link"
            for path in (*stale, *kept):
                path.mkdir(exist_ok=True)
                (path / "file").touch()
            link.symlink_to(root / "other")
        landed = int(len(stale) == 3 and all(path.exists() for path in stale))
        with trial(seed + 2000, runtime=root) as following:
            following.ready()
            following.finish()
        left = [path.name for path in stale if path.exists()]
        lost = [path.name for path in kept[: 1 if not faulty else None] if not path.exists()]
        emptied = faulty and not all((path / "file").exists() for path in kept)
        if left or lost or emptied:
            raise Broken(f"left: {left}, removed by mistake: {lost}, emptied: {emptied}")
        for path in kept[1:]:
            shutil.rmtree(path, ignore_errors=True)
        (of_living / "file").unlink(missing_ok=True)
        living.finish()
        for path in root.glob("muster-*-link"):
            path.unlink()
        return {"landed": landed, "false_reclaims": len(lost)} | living.look_round()


def network_sockets(it: Trial) -> list[str]:
    """Return the network sockets that processes of a trial have, but for Unix ones."""
    inodes = {}
    for kind in ("tcp", "tcp6", "udp", "udp6", "raw", "raw6"):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/net/{kind}").read_text().splitlines()[1:]:
                fields = line.split()
                inodes[fields[9]] = f"{kind} {fields[1]} {fields[3]}"
    found = []
    for pid in it.processes():
        with contextlib.suppress(OSError):
            for fd in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    target = os.readlink(f"/proc/{pid}/fd/{fd}")
                    if target.startswith("socket:") and target[8:-1] in inodes:
                        found.append(f"{pid}: {inodes[target[8:-1]]}")
    return found


def no_ports(seed: int, faulty: bool) -> Outcome:
    """F8 and G5: no process of a run has a socket of the network, so no port can be taken."""
    with trial(seed) as it:
        it.ready()
        it.later()
        processes = it.processes()
        found = network_sockets(it)
        if found:
            raise Broken(f"network sockets: {found}")
        it.finish()
        landed = int(len(processes) >= it.size + 2)
        return {"landed": landed, "network_sockets": 0, "processes": len(processes)} | (
            it.look_round()
        )


def _few_files() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))


def few_files(seed: int, faulty: bool) -> Outcome:
    """F9: a process may open 64 files: refused in three lines before any process is started."""
    with trial(seed, config={"warm": False}, before=_few_files if faulty else None) as it:
        if not faulty:
            it.ready()
            it.finish()
            return it.look_round()
        it.ended(2, 10.0)
        (refused,) = it.events("refused")
        if refused["children"] or it.events("born"):
            raise Broken("processes were started")
        if "64" not in refused["text"] or len(refused["text"].splitlines()) != 3:
            raise Broken(f"the error is {refused['text']!r}")
        return {"landed": 1, "error": refused["text"]} | it.look_round()


TINY = ("unshare", "-m", "sh", "-c", 'mount -t tmpfs -o size=64k none /dev/shm && exec "$@"', "sh")


def tiny_shared_memory(seed: int, faulty: bool) -> Outcome:
    """F9: /dev/shm holds 64 kB, in a mount namespace of its own: items of 200 kB and 8 MB go on."""
    config = {"sizes": [1000, 200_000, 8_000_000]}
    with trial(seed, config=config, prefix=TINY if faulty else ()) as it:
        it.ready()
        landed = 0
        if faulty:
            seen_by_a_node = Path("/proc", str(it.nodes()[0]), "root", "dev", "shm")
            size = os.statvfs(seen_by_a_node)
            landed = int(size.f_blocks * size.f_frsize <= 64 << 10)
        it.later(0.3, 0.6)
        it.finish()
        return {"landed": landed} | it.look_round()


def cycles(seed: int, faulty: bool) -> Outcome:
    """CYCLES: 1000 runs of two nodes, one after the other, in one process."""
    count = CYCLES if faulty else FIRST + 10
    with trial(seed, config={"cycles": count}, module=__name__) as it:
        code = it.ended(None, 900.0)
        looks = {event["cycle"]: event for event in it.events("cycle")}
        if code != 0 or count not in looks:
            raise Broken(f"left with {code} after {sorted(looks)}: {it.output()[-800:]}")
        names = ("files", "threads", "processes", "shared_memory", "rss_kb")
        first = {name: looks[FIRST][name] for name in names}
        last = {name: looks[count][name] for name in names}
        grown = [n for n in ("files", "threads", "processes") if last[n] > first[n]]
        if grown or last["rss_kb"] > first["rss_kb"] + 5000:
            raise Broken(f"after {FIRST}: {first}; after {count}: {last}")
        seconds = (looks[count]["t"] - looks[FIRST]["t"]) / (count - FIRST)
        out = {"n": count, "landed": count, "after_50": first, "after_all": last}
        return out | {"t_of_a_cycle": seconds} | it.look_round()


def nothing() -> int:
    """Be a node for a moment."""
    with Task() as task:
        task.run(1, end="own")
        return task.router.node_id


def _cycle(place: Path) -> None:
    notes = Notes(place, role="driver")
    wanted = json.loads((place / "config.json").read_text())["cycles"]
    for number in range(1, wanted + 1):
        if Parallel.runner(2)(nothing) != [0, 1]:
            raise SystemExit(5)
        if number in (FIRST, wanted) or number % 100 == 0:
            status = Path("/proc/self/status").read_text().split()
            children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
            notes.note(
                "cycle", cycle=number, files=open_files(), threads=threading.active_count(),
                processes=len(children), shared_memory=len(os.listdir("/dev/shm")),
                rss_kb=int(status[status.index("VmRSS:") + 1]),
            )  # fmt: skip


KINDS = {
    "F7": stale_directories,
    "F8": no_ports,
    "F9-files": few_files,
    "F9-shm": tiny_shared_memory,
    "CYCLES": cycles,
}

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    _cycle(Path(sys.argv[1]))
