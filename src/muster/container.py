"""The limits of this process: memory, cores and processes, from its container, ulimit and machine.

A container's limits come from its control group (cgroup v1 or v2) and all groups above it; the
tightest limit applies. Without a container, the machine is the limit.

    /proc/self/cgroup + mountinfo  ->  the directory of each controller  ->  the files in it, upward
"""

import contextlib
import os
import resource
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_NO_LIMIT = 1 << 60
"""cgroup v1 reports a number at least this large for "no limit"."""


@dataclass(frozen=True, slots=True)
class Limit:
    """How much of a resource is available, and what limits it."""

    amount: int
    by: str
    """The end of the sentence "that is ..."."""


def cores(proc: Path = _PROC) -> float:
    """Return the cores that this process may use; a container may set a fraction."""
    known = hasattr(os, "sched_getaffinity")
    found = float(len(os.sched_getaffinity(0)) if known else os.cpu_count() or 1)
    for group in _groups("cpu", proc):
        quota, _, period = _text(group / "cpu.max").partition(" ")
        if not quota:
            quota, period = _text(group / "cpu.cfs_quota_us"), _text(group / "cpu.cfs_period_us")
        if quota.isdigit() and period.isdigit() and int(period):
            found = min(found, int(quota) / int(period))
    return found


def whole_cores() -> int:
    """Return how many processes can compute at once without sharing a core; at least 1."""
    return max(1, int(cores()))


def memory(proc: Path = _PROC) -> Limit:
    """Return the most memory that this process can get, in bytes."""
    limits = [Limit(_machine_memory(proc), "the memory of this machine")]
    for group in _groups("memory", proc):
        most = _number(group / "memory.max", group / "memory.limit_in_bytes")
        if most is not None:
            free = max(0, most - _in_use(group))
            limits.append(Limit(free, f"what the container has left of {_gib(most)} GiB"))
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY:
        limits.append(Limit(soft, "the limit of a process (ulimit -v)"))
    return min(limits, key=lambda each: each.amount)


def free_memory(proc: Path = _PROC) -> int | None:
    """Return the memory that this process can still get, in bytes; None if unknown."""
    limits = [_of_table(proc / "meminfo", "MemAvailable:", 1024)]
    for group in _groups("memory", proc):
        most = _number(group / "memory.max", group / "memory.limit_in_bytes")
        if most is not None:
            limits.append(max(0, most - _in_use(group)))
    return min((each for each in limits if each is not None), default=None)


def processes(proc: Path = _PROC) -> Limit | None:
    """Return how many more processes and threads may be started; None without a limit."""
    limits = []
    for group in _groups("pids", proc):
        most, now = _number(group / "pids.max"), _number(group / "pids.current")
        if most is not None and now is not None:
            left = max(0, most - now)
            limits.append(Limit(left, f"what the container has left of {most} processes"))
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if soft != resource.RLIM_INFINITY and os.geteuid() != 0:  # the limit does not apply to root
        left = max(0, soft - _threads_of_user(proc))
        limits.append(Limit(left, f"what this user has left of {soft} processes (ulimit -u)"))
    return min(limits, key=lambda each: each.amount, default=None)


def memory_kills(proc: Path = _PROC) -> int | None:
    """Return how many processes were killed for lack of memory; None if that is not counted.

    Counts those of this container, or of the whole machine if there is no container.
    """
    found = None
    for group in _groups("memory", proc):
        for file in ("memory.events", "memory.oom_control"):
            kills = _of_table(group / file, "oom_kill", 1)
            if kills is not None:  # a group's count includes the groups below it
                found = max(found or 0, kills)
    return _of_table(proc / "vmstat", "oom_kill", 1) if found is None else found


# ---- locating the files


def _groups(controller: str, proc: Path) -> Iterator[Path]:
    """Yield the directory of this process's group of a controller, and of all groups above it."""
    for line in _text(proc / "self" / "cgroup").splitlines():
        number, names, path = (*line.split(":", 2), "", "")[:3]
        is_v2 = number == "0" and not names
        if not (is_v2 or controller in names.split(",")):
            continue
        for mount, root in _mounts(proc, None if is_v2 else controller):
            inside = Path(path)
            # Inside a container, its own group may be mounted as the root, under the host's name.
            below = inside.relative_to(root) if inside.is_relative_to(root) else Path()
            group = mount / below
            yield group
            yield from (each for each in group.parents if each.is_relative_to(mount))


def _mounts(proc: Path, controller: str | None) -> Iterator[tuple[Path, Path]]:
    """Yield each mount point of a v1 controller (or of v2), and the group that is its root."""
    for line in _text(proc / "self" / "mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if len(fields) < 5 or len(kind) < 3:
            continue
        is_v2 = controller is None and kind[0] == "cgroup2"
        is_v1 = controller is not None and kind[0] == "cgroup" and controller in kind[2].split(",")
        if is_v2 or is_v1:
            yield Path(fields[4]), Path(fields[3])


# ---- reading the files


def _in_use(group: Path) -> int:
    """Return the memory in use by a group in bytes, without reclaimable file cache."""
    used = _number(group / "memory.current", group / "memory.usage_in_bytes") or 0
    stat = group / "memory.stat"
    for name in ("total_inactive_file", "inactive_file"):
        cached = _of_table(stat, name, 1)
        if cached is not None:
            return max(0, used - cached)
    return used


def _machine_memory(proc: Path) -> int:
    total = _of_table(proc / "meminfo", "MemTotal:", 1024)
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if total is None else total


def _threads_of_user(proc: Path) -> int:
    """Return the number of this user's threads, because the limit counts threads."""
    found = 0
    for name in filter(str.isdigit, os.listdir(proc)):
        with contextlib.suppress(OSError):
            if (proc / name).stat().st_uid == os.getuid():
                found += _of_table(proc / name / "status", "Threads:", 1) or 0
    return found


def _of_table(file: Path, name: str, unit: int) -> int | None:
    """Return the number in the line that begins with `name`, times `unit`."""
    for line in _text(file).splitlines():
        words = line.split()
        if len(words) > 1 and words[0] == name and words[1].isdigit():
            return int(words[1]) * unit
    return None


def _number(*files: Path) -> int | None:
    """Return the number in the first of these files that states a limit."""
    for file in files:
        text = _text(file)
        if text.isdigit() and int(text) < _NO_LIMIT:
            return int(text)
    return None


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace").strip()
    except OSError:
        return ""


def _gib(amount: int) -> str:
    return f"{amount / 2**30:,.1f}"
