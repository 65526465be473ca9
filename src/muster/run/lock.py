"""One writer at a time: an advisory lock that the system releases when its holder dies.

`FileLock` holds `flock` on a small file that contains the holder's process id. The file stays after
the lock is released; only the lock counts, so a dead run leaves nothing to clean up. On a file
system without locks it excludes no one, and `muster.run.claim` decides who writes. `shared` and
`alone` do the same for a directory that is being read, or about to be removed.
"""

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from muster.run.errors import RunLockedError

_BUSY = {errno.EAGAIN, errno.EACCES}
_held: "set[FileLock]" = set()


class FileLock:
    """A lock on a file, held by one open file: it also excludes threads of the same process.

    It lasts until it is released or the process exits, even if this object is garbage-collected.

    Args:
        path: The lock file; created if missing.
        wait: Seconds to wait for another holder before raising.
    """

    def __init__(self, path: Path, wait: float = 0.0) -> None:
        self.path = path
        self._wait = wait
        self._fd: int | None = None

    def acquire(self) -> None:
        """Take the lock.

        Raises:
            RunLockedError: Another holder kept it for `wait` seconds.
        """
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        try:
            self._lock(fd)
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        except BaseException:
            os.close(fd)
            raise
        self._fd = fd
        _held.add(self)

    def _lock(self, fd: int) -> None:
        deadline = time.monotonic() + self._wait
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except OSError as error:
                if error.errno not in _BUSY:
                    return  # no locks on this file system: there the record of a claim decides
                if time.monotonic() >= deadline:
                    raise self._locked(fd) from None
            time.sleep(0.01)

    def _locked(self, fd: int) -> RunLockedError:
        text = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
        pid = int(text) if text.isascii() and text.isdigit() else None
        holder = f"process {pid}" if pid is not None else "another process"
        return RunLockedError(
            f"{self.path.parent} is in use: {holder} is writing to it",
            "a run has one writer, because checkpoints and metrics of two would be mixed",
            f"wait for it or stop it{f' (kill {pid})' if pid is not None else ''}, "
            "or give another --run-dir",
            pid=pid,
        )

    def release(self) -> None:
        """Release the lock. Does nothing if it is not held."""
        fd, self._fd = self._fd, None
        _held.discard(self)
        if fd is not None:
            os.close(fd)

    @property
    def held(self) -> bool:
        """Whether this object holds the lock now."""
        return self._fd is not None

    def __enter__(self) -> "FileLock":
        self.acquire()
        return self

    def __exit__(self, *exception: object) -> None:
        self.release()


def _forget_in_child() -> None:
    # A forked worker has a copy of the open file, which would keep the lock of a dead parent.
    # Closing the copy does not release the parent's lock.
    for lock in list(_held):
        lock.release()


os.register_at_fork(after_in_child=_forget_in_child)


@contextlib.contextmanager
def shared(directory: int) -> Iterator[None]:
    """Keep muster from removing an open directory while it is read."""
    with _advisory(directory, fcntl.LOCK_SH):
        yield


@contextlib.contextmanager
def alone(path: Path) -> Iterator[bool]:
    """Exclude readers of a directory; yield True if there are none and it may be removed."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        yield True  # a link or a file, which is never read as a checkpoint
        return
    try:
        with _advisory(fd, fcntl.LOCK_EX | fcntl.LOCK_NB) as free:
            yield free
    finally:
        os.close(fd)


@contextlib.contextmanager
def _advisory(fd: int, kind: int) -> Iterator[bool]:
    try:
        fcntl.flock(fd, kind)
    except OSError as error:
        # If the file system cannot lock directories, readers are not protected; to them a removed
        # checkpoint is an error like any missing file.
        yield error.errno not in _BUSY
        return
    try:
        yield True
    finally:
        fcntl.flock(fd, fcntl.LOCK_UN)
