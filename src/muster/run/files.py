"""Files that are either complete or absent.

Every file of this package that must survive a crash is written through `Files`: a few system calls,
one method each, so that a test can make any of them fail. On top of it:

    write_new     one new file, synced; returns its size and sha256
    write_atomic  writes to a temporary file, syncs, renames: old content or new content
    open_regular  opens an existing file of a directory, if it is a regular file and no link
    read_regular  reads a whole regular file of bounded size
"""

import contextlib
import ctypes
import errno
import functools
import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Iterable
from pathlib import Path

from muster.framework.node import advance
from muster.run.errors import CheckpointError

Buffer = bytes | memoryview

_CHUNK = 8 << 20
_NO_EXCHANGE = {errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP}
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


class Files:
    """The system calls that change the disk. Tests replace it by one that fails."""

    def mkdir(self, path: Path) -> None:
        """Make a directory that does not exist yet."""
        os.mkdir(path)

    def create(self, path: Path) -> int:
        """Open a new file for writing; an existing file or a link is an error."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(path, flags, 0o666)

    def write(self, fd: int, data: Buffer) -> int:
        """Write some of the data and return the number of bytes written."""
        return os.write(fd, data)

    def fsync(self, fd: int) -> None:
        """Wait until the file's content is on the disk."""
        os.fsync(fd)

    def fsync_dir(self, path: Path) -> None:
        """Wait until the names in a directory are on the disk."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def rename(self, source: Path, target: Path) -> None:
        """Rename a file or directory; an existing file of that name is replaced."""
        os.rename(source, target)

    def exchange(self, one: Path, other: Path) -> bool:
        """Exchange two names in one step; return False if the file system cannot."""
        renameat2 = _renameat2()
        if renameat2 is None:
            return False
        code = renameat2(one, other)
        if code in _NO_EXCHANGE:
            return False
        if code:
            raise OSError(code, os.strerror(code), str(one))
        return True

    def unlink(self, path: Path) -> None:
        """Remove a file or a link."""
        os.unlink(path)

    def remove_tree(self, path: Path) -> None:
        """Remove a directory and its content; links are removed, not followed."""
        shutil.rmtree(path)


REAL = Files()


@functools.cache
def _renameat2() -> Callable[[Path, Path], int] | None:
    """Return the system call that swaps two names; it returns an errno. None if not available."""
    try:
        function = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):  # not Linux, or the C library does not offer it
        return None
    function.argtypes = (
        [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint]
    )  # fmt: skip

    def call(one: Path, other: Path) -> int:
        paths = os.fsencode(one), os.fsencode(other)
        done = function(_AT_FDCWD, paths[0], _AT_FDCWD, paths[1], _RENAME_EXCHANGE)
        return ctypes.get_errno() if done != 0 else 0

    return call


def write_new(path: Path, chunks: Iterable[Buffer], files: Files = REAL) -> tuple[int, str]:
    """Write a file that does not exist yet, and sync it.

    Args:
        path: The file.
        chunks: Its content, in pieces; each is written and released before the next is requested.
        files: The system calls.

    Returns:
        Size in bytes and sha256 of the written data.
    """
    size, digest = 0, hashlib.sha256()
    fd = files.create(path)
    try:
        for chunk in chunks:
            view = memoryview(chunk).cast("B")
            for start in range(0, len(view), _CHUNK):
                piece = view[start : start + _CHUNK]
                # Hashed as it is written: the sum is that of the bytes on the disk, even if another
                # thread changes the array meanwhile.
                piece = memoryview(bytes(piece)) if not piece.readonly else piece
                digest.update(piece)
                size += len(piece)
                while piece:  # the system may write only a part of it
                    piece = piece[files.write(fd, piece) :]
                advance()  # a large file on a slow disk does not count as a hang
        files.fsync(fd)
    finally:
        os.close(fd)
    return size, digest.hexdigest()


def write_atomic(path: Path, data: bytes, files: Files = REAL) -> None:
    """Write a file so that readers see either the old content or the new content.

    One writer at a time: the caller holds the lock of the directory.
    """
    aside = path.with_name(f".{path.name}.partial")
    with contextlib.suppress(FileNotFoundError):
        files.unlink(aside)  # left by a writer that was killed
    try:
        write_new(aside, [data], files)
        files.rename(aside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            files.unlink(aside)
        raise
    files.fsync_dir(path.parent)


def make_directories(path: Path, files: Files = REAL) -> None:
    """Create a directory and its missing parents, and sync their names."""
    missing = [each for each in (path, *path.parents) if not each.is_dir()]
    for each in reversed(missing):
        with contextlib.suppress(FileExistsError):
            files.mkdir(each)
        files.fsync_dir(each.parent)


def remove(path: Path, files: Files = REAL) -> None:
    """Remove a file, a link (not its target), or a directory."""
    if path.is_dir() and not path.is_symlink():
        files.remove_tree(path)
    else:
        files.unlink(path)


def open_regular(name: str, directory: int, shown: Path) -> int:
    """Open a file of an open directory for reading, if it is a regular file.

    Args:
        name: The file's name, without any directory.
        directory: File descriptor of the directory.
        shown: The path for error messages.

    Raises:
        CheckpointError: It is missing, a link, a directory, or not a regular file.
    """
    # Non-blocking: opening a named pipe would wait for a writer.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        fd = os.open(name, flags, dir_fd=directory)
    except OSError as error:
        link = error.errno in (errno.ELOOP, errno.EMLINK)
        problem = "is a symbolic link" if link else f"cannot be opened: {error.strerror}"
        raise damaged(shown, problem) from error
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise damaged(shown, "is not a regular file")
    return fd


def read_regular(path: Path, most: int, *, links: bool = True) -> bytes:
    """Return the content of a file, if it is a regular file.

    Args:
        path: The file.
        most: Maximum size in bytes.
        links: Whether to follow a symbolic link.

    Raises:
        OSError: It does not exist, cannot be read, is not a regular file, or is too large.
    """
    # Non-blocking: opening a named pipe would wait for a writer.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if links else os.O_NOFOLLOW)
    fd = os.open(path, flags)
    with open(fd, "rb") as opened:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        data = opened.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"it has more than {most} bytes", str(path))
    return data


def damaged(path: Path, problem: str) -> CheckpointError:
    """Return the error for a file that contradicts its checkpoint's manifest, without an offer."""
    return CheckpointError(
        f"{path} {problem}",
        "the checkpoint is damaged, incomplete, or was not written by muster",
        "another checkpoint",
    )
