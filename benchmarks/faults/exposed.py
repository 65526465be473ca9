"""All that the processes of a run can be reached by: files, directories, sockets, ports, secrets.

`targets` finds them from outside, as root: by what the processes have open, what they listen on,
and what is new in the places for temporary files. Nothing has to be known of who made it.
"""

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

MARK = "MUSTER_TRIAL"
TEMPORARY = (Path("/tmp"), Path("/dev/shm"))
Target = tuple[str, str]
_NO_FILES = ("/dev/", "/proc/", "/memfd:")


def processes(mark: str) -> list[int]:
    """Return all live processes of the run that carries this mark."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            if wanted in Path("/proc", name, "environ").read_bytes():
                found.append(int(name))
    return found


def there() -> set[Path]:
    """Return what is in the places for temporary files now."""
    return {path for place in TEMPORARY for path in place.iterdir()}


def targets(pids: Iterable[int], before: set[Path], shared: Path) -> list[Target]:
    """Return what another user may try something on, each with its kind.

    Args:
        pids: The processes of the run.
        before: What was in the places for temporary files before it began.
        shared: The user's own place, which others may read if the umask lets them, and not change.
    """
    pids = list(pids)
    open_files, inodes = _opened(pids)
    paths = open_files | {
        path for top in there() - before if _is_of(top, pids) for path in walk(top)
    }
    paths |= set(_bound(inodes))
    found = {_kind(path, shared) for path in paths}
    found |= {("abstract", name) for name in _abstract(inodes)}
    found |= {("port", str(port)) for port in _ports(inodes)}
    for pid in pids:
        found |= {("secret", f"/proc/{pid}/{name}") for name in ("environ", "mem", "maps", "stack")}
    return sorted(target for target in found if target is not None)


def walk(top: Path) -> Iterator[Path]:
    """Yield a path and all that is below it."""
    yield top
    for folder, directories, files in os.walk(top):
        for name in (*directories, *files):
            yield Path(folder, name)


def _is_of(top: Path, pids: list[int]) -> bool:
    """Whether what is new belongs to the run: it names one of its processes, or one has it open."""
    words = top.name.replace("_", "-").split("-")
    if any(str(pid) in words for pid in pids):
        return True
    return any(str(path).startswith(str(top)) for path in _opened(pids)[0])


def _opened(pids: list[int]) -> tuple[set[Path], set[int]]:
    """Return the files that processes may write, and the inodes of their sockets."""
    files, inodes = set(), set()
    for pid in pids:
        with suppress(OSError):
            for fd in os.listdir(f"/proc/{pid}/fd"):
                with suppress(OSError):
                    link = os.readlink(f"/proc/{pid}/fd/{fd}")
                    if link.startswith("socket:["):
                        inodes.add(int(link[8:-1]))
                    elif link.startswith("/") and not link.startswith(_NO_FILES):
                        files |= {Path(link), Path(link).parent} if _may_write(pid, fd) else set()
    return {path for path in files if path.exists()}, inodes


def _may_write(pid: int, fd: str) -> bool:
    for line in Path(f"/proc/{pid}/fdinfo/{fd}").read_text().splitlines():
        if line.startswith("flags:"):
            return int(line.split()[1], 8) & os.O_ACCMODE != os.O_RDONLY
    return False


def _kind(path: Path, shared: Path) -> Target | None:
    try:
        mode = path.lstat().st_mode
    except OSError:  # it is gone by now
        return None
    if path in TEMPORARY:
        return None
    # What is compiled beside code is as open as the code.
    if path == shared or shared in path.parents or "__pycache__" in path.parts:
        return "shared", str(path)
    if stat.S_ISDIR(mode):
        return "directory", str(path)
    if stat.S_ISSOCK(mode):
        return "socket", str(path)
    return "file", str(path)


def _unix(inodes: set[int]) -> Iterator[str]:
    for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
        words = line.split()
        if len(words) == 8 and int(words[6]) in inodes:
            yield words[7]


def _bound(inodes: set[int]) -> Iterator[Path]:
    for name in _unix(inodes):
        if not name.startswith("@"):
            yield Path(name)
            yield Path(name).parent


def _abstract(inodes: set[int]) -> Iterator[str]:
    return (name for name in _unix(inodes) if name.startswith("@"))


def _ports(inodes: set[int]) -> Iterator[int]:
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and int(words[9]) in inodes:
                yield int(words[1].rpartition(":")[2], 16)
