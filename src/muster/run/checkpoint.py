"""`CheckpointStore`: the checkpoints of one run, each complete or absent.

    save   -> .step-400.partial-<pid>/   every file written and synced, then the directory
           -> step-400/                  renamed, its parent synced: from here on it is complete
           -> last.json                  written to a temporary file, synced, renamed
    load   -> verified against its manifest, then parsed (muster.run.reading)

A checkpoint is complete if its directory has its final name and its manifest verifies; there is no
other rule. Names that begin with a dot are unfinished or about to be removed, and are ignored. One
process or thread writes at a time; any number may read meanwhile.
"""

import errno
import operator
import os
import shlex
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, SupportsIndex

from muster.errors import MusterWarning, OptionError
from muster.framework.node import saving
from muster.run import manifest as manifests
from muster.run import reading, tensors
from muster.run.errors import CheckpointError
from muster.run.files import (
    REAL,
    Buffer,
    Files,
    damaged,
    make_directories,
    open_regular,
    write_atomic,
)
from muster.run.lock import FileLock
from muster.run.manifest import Manifest
from muster.run.place import CheckpointPlace
from muster.run.reading import NAME, POLICY, Checkpoint
from muster.run.sealed import check_seal, parse, seal
from muster.run.tree import Tree, split, split_plain
from muster.version import __version__

_LOCK_WAIT = 60.0
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_LAST = "last.json"
_POINTER_SIZE = 4096
_ATTEMPTS = 100

Paths = list[Path]
"""Defined outside the class, in which `list` is a method."""


class CheckpointStore:
    """The checkpoints in one directory.

    Args:
        path: The directory, `<run>/checkpoints`. The first save creates it.
        check_writable: Called before each write; raises if this process may not write.
        files: The system calls to write with; tests pass one that fails.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        check_writable: Callable[[], None] = lambda: None,
        files: Files = REAL,
    ) -> None:
        # Absolute, because an environment may change the working directory.
        self.path = Path(path).absolute()
        self._check_writable = check_writable
        self._files = files
        self._place = CheckpointPlace(self.path, files)
        self._good: dict[str, reading.Print] = {}

    def save(
        self,
        step: SupportsIndex,
        parts: Mapping[str, Tree],
        counters: Tree,
        meta: Tree | None = None,
    ) -> Path:
        """Save a checkpoint, point `last` at it, and return its directory.

        A checkpoint of the same step is replaced; the old one stays until the new one is complete.
        If `save` raises, every checkpoint that was complete before still exists.

        Args:
            step: The env_step, which names the directory.
            parts: Part name to state tree. No float array of "policy" may hold NaN or infinity.
            counters: env_step, train_iter, ...; plain values.
            meta: algo, env_id, config and other metadata; plain values.

        Raises:
            CheckpointError: The state cannot be saved exactly, or the disk write failed.
            NonFiniteStateError: The policy holds a NaN or an infinity.
        """
        name = f"step-{_checked_step(step)}"
        manifest, contents = _prepare(operator.index(step), parts, counters, meta or {})
        final = self.path / name
        with self._writing(f"{final} could not be saved"):
            partial = self._place.write(name, manifest, contents)
            self._good[name] = reading.fingerprint(partial)
            self._place.publish(partial, final)
            self._point_last(final)
        return final

    def load(self, path: str | Path | None = None) -> Checkpoint:
        """Load a checkpoint, after verifying every byte of it.

        Args:
            path: Its directory; None for the one that `last` points at.

        Raises:
            CheckpointError: There is none, or it is damaged. The message names the file and the
                newest earlier checkpoint that verifies, which is also the error's `offer`.
        """
        if path is not None:
            return self._load(Path(path).absolute())
        found = self._last()
        for _ in range(_ATTEMPTS):
            try:
                return reading.load(found)
            except CheckpointError:
                # A writer may have saved another checkpoint and pruned this one in the meantime.
                found, before = self._last(), found
                if found == before:
                    break
        return self._load(found)

    def _last(self) -> Path:
        found = self.last()
        if found is None:
            raise CheckpointError(
                f"there is no checkpoint in {self.path}",
                "the run was stopped before it saved one, or this is not its directory",
                f"rm -r {shlex.quote(str(self.path.parent))}, and start the run again",
            )
        return found

    def _load(self, path: Path) -> Checkpoint:
        try:
            return reading.load(path)
        except CheckpointError as error:
            raise self._with_offer(error, path) from error

    def last(self) -> Path | None:
        """Return the checkpoint that was saved last; None if nothing was ever saved here.

        Raises:
            CheckpointError: One was saved, but it is missing or unknown, so this is not a new run.
        """
        found = self._last_pointed()
        if found is not None:
            return found
        # The first save may have been killed between its last two steps.
        named = self._named()
        if not named:
            return None
        try:
            reading.verify(named[-1])
        except CheckpointError as error:
            raise self._with_offer(error, named[-1]) from error
        return named[-1]

    def list(self) -> Paths:
        """Return the complete checkpoints in ascending order of step, without damaged ones."""
        return [path for path in self._named() if self._is_good(path)]

    def prune(self, keep: int = 3) -> Paths:
        """Remove all but the newest `keep` complete checkpoints and `last`.

        Damaged checkpoints do not count, and are left for inspection. A checkpoint that is being
        read stays until the next call.

        Returns:
            The removed directories.
        """
        if keep < 1:
            raise OptionError(
                f"prune(keep={keep})", "a run without a checkpoint cannot be resumed", "keep=1"
            )
        with self._writing(f"{self.path} could not be pruned"):
            try:
                last = self._last_pointed()
            except CheckpointError as error:
                warnings.warn(
                    f"no checkpoint is pruned, as {error.args[0]}", MusterWarning, stacklevel=2
                )
                return []
            removed = []
            for path in self.list()[:-keep]:
                if path != last and self._place.take_away(path):
                    removed.append(path)
            self._place.clean()
        return removed

    def clean(self) -> None:
        """Remove leftovers of killed writers, as every save does.

        On a file system that cannot exchange two names, a writer killed while replacing a
        checkpoint has left the old one under another name; this restores its name.
        """
        with self._writing(f"{self.path} could not be cleaned"):
            pass

    # The writing half. All of it runs with the lock held.

    @contextmanager
    def _writing(self, what: str) -> Iterator[None]:
        self._check_writable()
        try:
            make_directories(self.path, self._files)
            # The processes of one run take turns; the claim ensures that there is only one run.
            with saving(), FileLock(self.path / ".lock", wait=_LOCK_WAIT):
                self._place.clean()
                yield
        except OSError as error:
            raise CheckpointError(
                f"{what}: {error}",
                "the disk or its quota is full"
                if error.errno in _NO_ROOM
                else "the file system reported an error, so the checkpoint may not be on the disk",
                f"make room, or check the disk under {self.path}; older checkpoints are untouched",
            ) from error

    def _point_last(self, target: Path) -> None:
        write_atomic(self.path / _LAST, seal({"checkpoint": target.name}), self._files)

    # The reading half.

    def _last_pointed(self) -> Path | None:
        """Return the checkpoint that `last.json` names; None if there is no such file."""
        for _ in range(_ATTEMPTS):
            name = self._pointer()
            if name is None:
                return None
            path = self.path / name
            if path.is_dir():
                return path
            if self._pointer() == name:  # otherwise a writer has just replaced it
                break
        error = damaged(self.path / _LAST, f"points at {path.name}, which does not exist")
        raise self._with_offer(error, path)

    def _pointer(self) -> str | None:
        file = self.path / _LAST
        if not os.path.lexists(file):
            return None
        try:
            return _read_pointer(file)
        except CheckpointError as error:
            raise self._with_offer(error, None) from error

    def _named(self) -> Paths:
        """Return all paths named like a complete checkpoint, in ascending order of step."""
        try:
            names = [name for name in os.listdir(self.path) if NAME.fullmatch(name)]
        except FileNotFoundError:
            return []
        return [self.path / name for name in sorted(names, key=_step_of)]

    def _is_good(self, path: Path) -> bool:
        """Whether a checkpoint verifies. Sums of an unchanged checkpoint are not recomputed."""
        try:
            print_ = reading.fingerprint(path)
            if self._good.get(path.name) != print_:
                reading.verify(path)
        except (CheckpointError, OSError):
            return False
        self._good[path.name] = print_
        return True

    def _with_offer(self, error: CheckpointError, bad: Path | None) -> CheckpointError:
        """Add to the error the newest earlier checkpoint that verifies, or else any other."""
        store = self if bad is None or bad.parent == self.path else CheckpointStore(bad.parent)
        what, why, fix = error.args
        others = [path for path in reversed(store._named()) if path != bad]
        if bad is not None and NAME.fullmatch(bad.name):
            others.sort(key=lambda path: _step_of(path.name) > _step_of(bad.name))
        offer = next((path for path in others if store._is_good(path)), None)
        if offer is not None:
            fix = f"--from-checkpoint {shlex.quote(str(offer))}, the newest intact one"
        return type(error)(what, why, fix, offer=offer)


def _prepare(
    step: int, parts: Mapping[str, Tree], counters: Tree, meta: Tree
) -> tuple[Manifest, dict[str, Iterator[Buffer]]]:
    """Split everything to be saved into plain values and arrays, before anything is written."""
    state: dict[str, Any] = {}
    contents: dict[str, Iterator[Buffer]] = {}
    for part, tree in parts.items():
        file = manifests.part_file(part)
        if file is None or len(parts) > manifests.MAX_PARTS:
            raise CheckpointError(
                f"{part!r} cannot be saved",
                "a part's name is also a file name: letters, digits, - and _, at most 64; and "
                f"a checkpoint has at most {manifests.MAX_PARTS} parts",
                'parts={"policy": agent.state_dict(), ...}',
            )
        state[part], arrays = split(tree, part)
        if part == POLICY:
            reading.check_finite(arrays, f"the policy of step {step} is not saved")
        if arrays:
            contents[file] = tensors.encode(arrays, f"the part {part!r}")
    manifest = Manifest(
        step=step,
        muster_version=__version__,
        counters=split_plain(counters, "counters"),
        meta=split_plain(meta, "meta"),
        state=state,
        files={},
    )
    return manifest, contents


def _checked_step(step: SupportsIndex) -> int:
    number = -1 if isinstance(step, bool) else operator.index(step)
    if not NAME.fullmatch(f"step-{number}"):
        raise OptionError(
            f"save(step={step!r})", "a step is a count of environment steps", "ctx.env_step"
        )
    return number


def _step_of(name: str) -> int:
    return int(name.removeprefix("step-"))


def _read_pointer(file: Path) -> str:
    directory = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fd = open_regular(file.name, directory, file)
        with open(fd, "rb") as opened:
            data = opened.read(_POINTER_SIZE + 1)
    finally:
        os.close(directory)
    try:
        body = parse(data, _POINTER_SIZE, _POINTER_SIZE)
        check_seal(data)
    except ValueError as error:
        raise damaged(file, str(error)) from error
    name = str(body.get("checkpoint"))
    if not NAME.fullmatch(name):
        raise damaged(file, "does not name a checkpoint")
    return name
