"""D2, D4, D5: one system call of a save fails, or all of them from then on, or the power does.

fail_each_call   the Nth call raises, for every N: once, for ever, or after it did its work;
                 and the process dies at the Nth call, for every N
short_writes     the system takes only a part of what it is given
cut_the_power    what was not synced is lost or reordered, at every call (a model of a disk)
"""

import errno
import os
import shutil
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from benchmarks.faults.disk_model import DiskModel
from benchmarks.faults.scene import Tally, save_number, which

from muster.run import CheckpointError, CheckpointStore
from muster.run.files import Buffer, Files

SMALL = 2_000
GIVEN_BACK = "given back by the next writer"


class Died(BaseException):
    """The process is gone: no handler can do anything any more."""


class FailingFiles(Files):
    """Lets the call of a given number fail.

    Args:
        at: The number of the call, from 1.
        mode: "once", "for ever" (it and all later ones), "after" (it fails after its work was
            done), or "dies" (it and all later ones raise what nothing catches).
        exchange: Whether the file system can exchange two names.
    """

    def __init__(self, at: int, mode: str, exchange: bool = True) -> None:
        self.at, self.mode, self.can_exchange = at, mode, exchange
        self.calls: list[str] = []
        self.fired = False

    def _count(self, name: str, work: Callable[[], Any]) -> Any:
        self.calls.append(name)
        number = len(self.calls)
        if number == self.at or (number > self.at and self.mode in ("for ever", "dies")):
            self.fired = True
            if self.mode == "dies":
                raise Died
            if self.mode == "after":
                work()
            raise OSError(errno.EIO, "injected", name)
        return work()

    def mkdir(self, path: Path) -> None:
        """Fail or work."""
        self._count("mkdir", lambda: super(FailingFiles, self).mkdir(path))

    def create(self, path: Path) -> int:
        """Fail or work; a file that was made before the failure stays, as an empty one."""
        if len(self.calls) + 1 == self.at and self.mode == "after":
            os.close(super().create(path))
            return int(self._count("create", lambda: None))
        return int(self._count("create", lambda: super(FailingFiles, self).create(path)))

    def write(self, fd: int, data: Buffer) -> int:
        """Fail or work."""
        return int(self._count("write", lambda: super(FailingFiles, self).write(fd, data)))

    def fsync(self, fd: int) -> None:
        """Fail or work."""
        self._count("fsync", lambda: super(FailingFiles, self).fsync(fd))

    def fsync_dir(self, path: Path) -> None:
        """Fail or work."""
        self._count("fsync_dir", lambda: super(FailingFiles, self).fsync_dir(path))

    def rename(self, source: Path, target: Path) -> None:
        """Fail or work."""
        self._count("rename", lambda: super(FailingFiles, self).rename(source, target))

    def exchange(self, one: Path, other: Path) -> bool:
        """Fail, work, or be unable."""
        if not self.can_exchange:
            return False
        return bool(self._count("exchange", lambda: super(FailingFiles, self).exchange(one, other)))

    def unlink(self, path: Path) -> None:
        """Fail or work."""
        self._count("unlink", lambda: super(FailingFiles, self).unlink(path))

    def remove_tree(self, path: Path) -> None:
        """Fail or work."""
        self._count("remove_tree", lambda: super(FailingFiles, self).remove_tree(path))


def first(store: CheckpointStore) -> None:
    """The first save of a store."""
    save_number(store, 3, size=SMALL)


def next_one(store: CheckpointStore) -> None:
    """A further save."""
    save_number(store, 3, size=SMALL)


def same_step(store: CheckpointStore) -> None:
    """A save over the newest one."""
    save_number(store, 3, step=20, size=SMALL)


def save_and_prune(store: CheckpointStore) -> None:
    """A save, and the removal of the oldest."""
    save_number(store, 3, size=SMALL)
    store.prune(keep=1)


SCENARIOS: dict[str, tuple[Callable[[CheckpointStore], None], Iterable[int], int]] = {
    # what is done, the saves that are there before, the save that it makes
    "first": (first, (), 3),
    "next": (next_one, (1, 2), 3),
    "same step": (same_step, (1, 2), 3),
    "same step, no exchange": (same_step, (1, 2), 3),
    "save and prune": (save_and_prune, (1, 2), 3),
}
MODES = ("once", "for ever", "after", "dies")


def fail_each_call(root: Path, tally: Tally, scenarios: Iterable[str] = SCENARIOS) -> None:
    """Let every call of every scenario fail in every mode."""
    for scenario in scenarios:
        for mode in MODES:
            at = 0
            while True:
                at += 1
                place = root / "store"
                shutil.rmtree(place, ignore_errors=True)
                if not _one_failure(place, tally, scenario, mode, at):
                    break
            shutil.rmtree(root / "store", ignore_errors=True)


def _one_failure(place: Path, tally: Tally, scenario: str, mode: str, at: int) -> bool:
    """Try one failure; return whether there was a call of that number."""
    act, before, makes = SCENARIOS[scenario]
    for save in before:
        save_number(CheckpointStore(place), save, size=SMALL)
    files = FailingFiles(at, mode, exchange="no exchange" not in scenario)
    raised = ""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            act(CheckpointStore(place, files=files))
        except (CheckpointError, Died) as error:
            raised = type(error).__name__
    old = max(before, default=None)
    found = which(CheckpointStore(place), SMALL)
    lost = found not in (old, makes) and "no exchange" in scenario
    if lost and mode in ("for ever", "dies"):
        # Such a file system has a moment without the name; the next writer gives it back.
        tally.counts[GIVEN_BACK] += 1
        found = _after_the_next_writer(place)
    details = {"scenario": scenario, "mode": mode, "call": at, "of": files.calls[-1:]}
    if not files.fired:
        tally.add("no fault", found == makes and not raised, found=found, **details)
        return False
    ok = found in (old, makes)
    if old is None and found != makes:
        # Before the first save there is nothing to find, and that is what is said.
        ok = CheckpointStore(place).last() is None and "no checkpoint" in str(found)
        found = "nothing yet"
    if not raised and found != makes:
        ok = False  # it was told to have been saved, and was not
    if not raised and not warned and mode != "after":
        tally.counts["failures of no consequence, unsaid"] += 1
    ok = ok and _goes_on(place)
    known = {makes: "new", old: "old", "nothing yet": "old"}
    tally.add(known.get(found, "neither"), ok, found=found, raised=raised, **details)
    return True


def _after_the_next_writer(place: Path) -> int | str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        CheckpointStore(place).clean()
    return which(CheckpointStore(place), SMALL)


def _goes_on(place: Path) -> bool:
    """Whether the next save works, and nothing is left lying about."""
    store = CheckpointStore(place)
    save_number(store, 4, size=SMALL)
    leftovers = [name for name in os.listdir(place) if "-" in name and name.startswith(".")]
    return which(store, SMALL) == 4 and not leftovers


class ShortFiles(Files):
    """Writes at most seven bytes at a time, as a system may."""

    def write(self, fd: int, data: Buffer) -> int:
        """Write the beginning."""
        return super().write(fd, data[:7])


def short_writes(root: Path, tally: Tally) -> None:
    """Save with a system that takes only a part of what it is given."""
    store = CheckpointStore(root / "short", files=ShortFiles())
    save_number(store, 1, size=SMALL)
    found = which(store, SMALL)
    tally.add(f"found {found}", found == 1)


def cut_the_power(root: Path, tally: Tally, images: int = 4) -> None:
    """Lose or reorder what was not synced, at every call of a save, and look at what is left."""
    for scenario in ("next", "same step", "same step, no exchange", "save and prune"):
        act, before, makes = SCENARIOS[scenario]
        place = root / "power"
        shutil.rmtree(place, ignore_errors=True)
        for save in before:
            save_number(CheckpointStore(place), save, size=SMALL)
        model = DiskModel(place, exchange="no exchange" not in scenario)
        act(CheckpointStore(place, files=model))
        for call in range(len(model.history) + 1):
            for image in range(images):
                left = root / "left"
                shutil.rmtree(left, ignore_errors=True)
                model.after_power_cut(call, image, left)
                found = which(CheckpointStore(left), SMALL)
                if found not in (max(before), makes) and "no exchange" in scenario:
                    tally.counts[GIVEN_BACK] += 1
                    found = _after_the_next_writer(left)
                done = call == len(model.history)
                ok = found == makes if done else found in (max(before), makes)
                outcome = "new" if found == makes else "old" if ok else "neither"
                tally.add(outcome, ok, scenario=scenario, call=call, image=image, found=found)
