"""The directory of the checkpoints: how a checkpoint gets its name there, and how it is removed.

    write      -> .step-400.partial-<pid>     all files, synced to disk
    publish    -> step-400                    in one step, also if it replaces an older one
    take_away  -> .step-400.removed-<pid>     no longer counts
    clean         removes names that begin with a dot, unless in use by a writer or reader

All of it runs while the store's lock is held, but a kill or a power cut may interrupt it between
any two system calls. At each of these points the old checkpoint or the new one is complete.
"""

import itertools
import os
import re
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from muster.errors import MusterWarning
from muster.run import manifest as manifests
from muster.run.errors import CheckpointError
from muster.run.files import Buffer, Files, remove, write_new
from muster.run.lock import alone
from muster.run.manifest import FileEntry, Manifest

_LEFTOVER = re.compile(r"\.(step-[0-9]+)\.(partial|replaced|removed)-([0-9]+)(?:-[0-9]+)?")


class CheckpointPlace:
    """A directory of checkpoints, for the process that may change it.

    Args:
        path: The directory.
        files: The system calls to write with.
    """

    def __init__(self, path: Path, files: Files) -> None:
        self.path = path
        self._files = files

    def write(self, name: str, manifest: Manifest, contents: dict[str, Iterator[Buffer]]) -> Path:
        """Write a whole checkpoint under a name that is ignored, and sync it to disk."""
        partial = self._free_name(name, "partial")
        try:
            self._files.mkdir(partial)
            for file, chunks in contents.items():
                manifest.files[file] = FileEntry(*write_new(partial / file, chunks, self._files))
            text = _text(manifest, self.path / name)
            write_new(partial / manifests.FILE_NAME, [text], self._files)
            self._files.fsync_dir(partial)
        except BaseException:
            self._try_to_remove(partial)
            raise
        return partial

    def publish(self, partial: Path, final: Path) -> None:
        """Give a checkpoint its final name, and remove the one that had it."""
        replaces = os.path.lexists(final)
        try:
            if not replaces:
                self._files.rename(partial, final)
            elif not self._files.exchange(partial, final):
                self._replace_in_two_steps(partial, final)
        except OSError:
            self._try_to_remove(partial)
            raise
        # Only now may the old one be removed: until the new name is on disk, the old checkpoint is
        # all that survives a power failure.
        self._files.fsync_dir(self.path)
        if replaces:
            self.clean()

    def _replace_in_two_steps(self, partial: Path, final: Path) -> None:
        # For file systems that cannot exchange two names. A writer that is killed in between leaves
        # no checkpoint of this name, and `clean` restores the name of the old one.
        aside = self._free_name(final.name, "replaced")
        try:
            self._files.rename(final, aside)
            self._files.rename(partial, final)
        except BaseException:
            # A call over a network may report failure although it succeeded, so check.
            with suppress(OSError):
                if not os.path.lexists(final):
                    self._files.rename(aside, final)
            raise

    def take_away(self, path: Path) -> bool:
        """Make a checkpoint no longer count, unless it is being read; `clean` removes it."""
        with alone(path) as free:
            if free:
                self._files.rename(path, self._free_name(path.name, "removed"))
        return free

    def clean(self) -> None:
        """Remove leftovers of dead writers, and checkpoints that were replaced or taken away."""
        leftovers = [name for name in os.listdir(self.path) if _LEFTOVER.fullmatch(name)]
        if not leftovers:
            return
        try:
            # The replacements must be on disk before the leftovers are removed.
            self._files.fsync_dir(self.path)
            for name in leftovers:
                self._clean_one(name)
        except OSError as error:
            warnings.warn(
                f"the remains of an earlier save in {self.path} cannot be removed yet: {error}",
                MusterWarning,
                stacklevel=2,
            )

    def _clean_one(self, name: str) -> None:
        found = _LEFTOVER.fullmatch(name)
        assert found is not None  # the caller has matched it
        final_name, kind, pid = found.groups()
        path, final = self.path / name, self.path / final_name
        if kind == "replaced" and not os.path.lexists(final):
            self._files.rename(path, final)
            self._files.fsync_dir(self.path)
            return
        # The lock says that no other process is writing. If the file system's locks do not reach
        # other containers, that may be wrong, so files of a live process are left alone.
        if _lives_elsewhere(int(pid)):
            return
        with alone(path) as free:
            if free:
                remove(path, self._files)

    def _try_to_remove(self, path: Path) -> None:
        with suppress(OSError):
            if os.path.lexists(path):
                remove(path, self._files)

    def _free_name(self, name: str, kind: str) -> Path:
        # Numbered: the same process may have left one that a reader still holds.
        numbers = itertools.count()
        while True:
            number = next(numbers)
            tail = f"-{number}" if number else ""
            path = self.path / f".{name}.{kind}-{os.getpid()}{tail}"
            if not os.path.lexists(path):
                return path


def _text(manifest: Manifest, final: Path) -> bytes:
    try:
        return manifests.to_bytes(manifest)
    except ValueError as error:
        raise CheckpointError(
            f"{final} could not be saved: its manifest {error}",
            "lists and dicts of plain values go into the manifest, which is meant to be small",
            "NumPy arrays instead of long lists in state_dict()",
        ) from error


def _lives_elsewhere(pid: int) -> bool:
    if pid == os.getpid():
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True
