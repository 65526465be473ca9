"""`Claim`: the right to write into a run directory, which one process has at a time.

    .lock         held with `flock` where the file system has locks: released when its holder dies
    .writer.json  the holder: process, host, start; touched every few seconds as a heartbeat

On one machine the lock decides, and the record only names the holder. On a shared file system locks
may be missing, or may not reach other machines. There the record decides: it is created
exclusively, and a record of another machine is overridden only after a minute without a heartbeat
by the file server's own clock. A writer that was overridden (for example, because its machine was
suspended) finds another record in place of its own, and stops writing.
"""

import contextlib
import json
import os
import secrets
import signal
import socket
import stat
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from muster.processes import start_of
from muster.run.errors import RunDirectoryError, RunLockedError
from muster.run.lock import FileLock

LOCK, WRITER = ".lock", ".writer.json"
BEAT_SECONDS = 10.0
DEAD_AFTER_SECONDS = 60.0
"""A writer on another machine without a heartbeat for this long counts as dead."""
_RECORD_WITHIN_SECONDS = 2.0
"""A writer creates its record right after locking; only a stopped process takes longer."""
_MAX_RECORD = 4096


@dataclass(frozen=True)
class RunWriter:
    """The writer of a run, as its record describes it."""

    pid: int
    started: int
    """When the process started, in clock ticks since its machine booted."""
    host: str
    system: str
    """The machine, boot and process namespace to which `pid` belongs."""
    since: str
    nonce: str
    """Distinguishes two records with otherwise equal fields."""

    @classmethod
    def here(cls) -> "RunWriter":
        """Return the record of this process."""
        return cls(
            pid=os.getpid(),
            started=start_of(os.getpid()),
            host=socket.gethostname(),
            system=_system(),
            since=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            nonce=secrets.token_hex(8),
        )

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, since {self.since}"


class Claim:
    """The right to write into one directory.

    Args:
        directory: The run directory, which exists.
        lock: Held while the claim is; tests pass one of a file system without locks.
    """

    def __init__(self, directory: Path, lock: FileLock | None = None) -> None:
        self._directory = directory
        self._lock = lock or FileLock(directory / LOCK)
        self._mine: RunWriter | None = None
        self._locked_by: int | None = None
        self._released = threading.Event()
        self._beating: threading.Thread | None = None

    def acquire(self) -> None:
        """Acquire the claim.

        Raises:
            RunLockedError: Another process holds it; the message names the process.
        """
        deadline = time.monotonic() + _RECORD_WITHIN_SECONDS
        while not self._try_to_acquire():
            # The holder has not written its record yet, or has just released the lock: retry.
            if time.monotonic() >= deadline:
                raise in_use(self._directory, None, self._locked_by)
            time.sleep(0.01)
        self._released.clear()
        self._beating = threading.Thread(target=self._beat, name="muster-claim", daemon=True)
        self._beating.start()

    def release(self) -> None:
        """Release the claim. Does nothing if it is not held."""
        mine, self._mine = self._mine, None
        if mine is None:
            return
        self._released.set()
        if self._beating is not None:
            self._beating.join()
            self._beating = None
        if _nonce(self._directory) == mine.nonce:
            with contextlib.suppress(OSError):
                os.unlink(self._directory / WRITER)
        self._lock.release()

    @property
    def held(self) -> bool:
        """Whether this object holds the claim now."""
        return self._mine is not None

    @property
    def nonce(self) -> str | None:
        """The nonce of this claim's record; None if the claim is not held."""
        return None if self._mine is None else self._mine.nonce

    def _try_to_acquire(self) -> bool:
        """Acquire the claim if free; raise if a live writer holds it; return False if unclear."""
        self._locked_by = None
        try:
            self._lock.acquire()
        except RunLockedError as error:
            holder, age = _read(self._directory)
            if holder is not None and _lives(holder, age):
                raise in_use(self._directory, holder) from None
            self._locked_by = error.pid
            return False
        try:
            self._mine = self._written_record()
        finally:
            if self._mine is None:
                self._lock.release()
        return self._mine is not None

    def _written_record(self) -> RunWriter | None:
        """Create the record; return None if one exists that is stale or not yet readable."""
        mine = RunWriter.here()
        if _create(self._directory / WRITER, mine):
            return mine
        holder, age = _read(self._directory)
        if not _lives(holder, age):
            self._set_aside(holder)
        elif holder is not None:
            raise in_use(self._directory, holder)
        return None

    def _set_aside(self, dead: RunWriter | None) -> None:
        """Remove the record of a dead writer, unless a live one has replaced it."""
        record = self._directory / WRITER
        aside = record.with_name(f"{WRITER}.{secrets.token_hex(8)}")
        try:
            os.rename(record, aside)
        except FileNotFoundError:
            return
        moved = _parsed(aside)
        if moved is not None and moved != dead:
            os.rename(aside, record)  # it belongs to a process that was faster
            raise in_use(self._directory, moved)
        os.unlink(aside)

    def _beat(self) -> None:
        while not self._released.wait(BEAT_SECONDS):
            with contextlib.suppress(OSError):
                os.utime(self._directory / WRITER)


def in_use(
    directory: Path, holder: RunWriter | None, locked_by: int | None = None
) -> RunLockedError:
    """Return the error that names the writer of a directory, as far as it is known.

    Args:
        directory: The run directory.
        holder: The author of the record; None if there is no readable record.
        locked_by: The process id in the lock file, if only that is known.
    """
    pid = locked_by if holder is None else holder.pid
    if holder is not None:
        who = str(holder)
    else:
        who = "another process" if pid is None else f"process {pid}"
    there = "" if holder is None or holder.system == _system() else f" on {holder.host}"
    kill = "" if pid is None else f" (kill {pid}{there})"
    return RunLockedError(
        f"{directory} is in use: {who}, is writing to it",
        "a run has one writer, because checkpoints and metrics of two would be mixed",
        f"wait for that process or stop it{kill}, or give another --run-dir",
        pid=pid,
    )


def check_claim(directory: Path, nonce: str) -> None:
    """Raise RunDirectoryError if another claim has replaced the one with this nonce."""
    holder = _parsed(directory / WRITER)
    if holder is None or holder.nonce == nonce:
        return
    raise RunDirectoryError(
        f"{directory} now belongs to another writer: {holder}",
        "this process showed no sign of life for a minute, and was taken for dead",
        f"muster resume {directory}, when the other writer has ended",
    )


def claim_of(directory: Path) -> str | None:
    """Return the nonce of a directory's current writer; None if there is no record."""
    return _nonce(directory)


def living_writer(directory: Path) -> RunWriter | None:
    """Return the current writer of a directory, as far as can be told without writing there.

    A writer on another machine counts as alive if its last heartbeat is at most a minute old by
    this machine's clock.
    """
    record = directory / WRITER
    holder = _parsed(record)
    if holder is None:
        return None
    try:
        age = time.time() - record.stat().st_mtime
    except OSError:  # the writer has just released its claim
        return None
    return holder if _lives(holder, age) else None


def ask_to_stop(directory: Path) -> RunWriter | None:
    """Send SIGTERM to the process that writes into a directory: the run saves and stops.

    Returns:
        The writer that received the signal; None if there is no writer.

    Raises:
        RunDirectoryError: The writer is on another machine, or belongs to another user.
    """
    writer = living_writer(directory)
    if writer is None:
        return None
    if writer.system != _system():
        raise _out_of_reach(directory, writer, f"it is on {writer.host}")
    try:
        # The file descriptor refers to this very process, even if its id is reused later.
        fd = os.pidfd_open(writer.pid)
    except OSError:
        return None
    try:
        if start_of(writer.pid) != writer.started:
            return None
        signal.pidfd_send_signal(fd, signal.SIGTERM)
    except ProcessLookupError:
        return None
    except PermissionError:
        raise _out_of_reach(directory, writer, "it belongs to another user") from None
    finally:
        os.close(fd)
    return writer


def _out_of_reach(directory: Path, writer: RunWriter, why: str) -> RunDirectoryError:
    return RunDirectoryError(
        f"{directory} cannot be stopped from here: {writer}, is writing to it",
        why,
        f"kill {writer.pid}, there",
    )


def _system() -> str:
    parts = [socket.gethostname()]
    with contextlib.suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
    with contextlib.suppress(OSError):
        parts.append(os.readlink("/proc/self/ns/pid"))
    return " ".join(parts)


def _create(path: Path, record: RunWriter) -> bool:
    """Create the record; return False if one exists."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    except FileExistsError:
        return False
    try:
        os.write(fd, f"{json.dumps(asdict(record))}\n".encode())
        os.fsync(fd)
    finally:
        os.close(fd)
    return True


def _read(directory: Path) -> tuple[RunWriter | None, float]:
    """Return the record, and the seconds since its last heartbeat."""
    record = directory / WRITER
    holder = _parsed(record)
    try:
        # By the clock of the file server, which may differ from the clocks of the machines.
        probe = directory / f"{WRITER}.{secrets.token_hex(8)}"
        os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        now = probe.stat().st_mtime
        os.unlink(probe)
        return holder, now - record.stat().st_mtime
    except OSError:
        return holder, 0.0


def _parsed(record: Path) -> RunWriter | None:
    try:
        fd = os.open(record, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with open(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return None
        text = file.read(_MAX_RECORD)
    try:
        found = RunWriter(**json.loads(text))
    except (ValueError, TypeError):
        return None
    plain = all(isinstance(each, str) for each in (found.host, found.system, found.since))
    whole = all(type(each) is int for each in (found.pid, found.started))
    return found if plain and whole and isinstance(found.nonce, str) else None


def _nonce(directory: Path) -> str | None:
    holder = _parsed(directory / WRITER)
    return None if holder is None else holder.nonce


def _lives(holder: RunWriter | None, age: float) -> bool:
    if holder is not None and holder.system == _system():
        return start_of(holder.pid) == holder.started
    return age < DEAD_AFTER_SECONDS
