"""D1, D3, D11: real processes that save, are killed, run out of disk, or get in each other's way.

    python -m benchmarks.faults.checkpoint_kills ROLE ...    is one of those processes

A child says on its standard output what it is about to do and what it has done, one letter and one
number at a time. So what it was doing when it was killed is known, and not guessed.
"""

import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.faults.children import end_with_harness
from benchmarks.faults.scene import Tally, is_save, save_number, which

from muster.run import CheckpointError, CheckpointStore, RunDirectory, RunLockedError
from muster.run.files import Buffer, remove
from muster.run.manifest import Manifest
from muster.run.place import CheckpointPlace

ROOT = Path(__file__).parents[2]
TIMEOUT = 60.0
KILL_SIZE = 1_000_000


class NaivePlace(CheckpointPlace):
    """Saves into the final directory at once: what the harness must find fault with."""

    def write(self, name: str, manifest: Manifest, contents: dict[str, Iterator[Buffer]]) -> Path:
        """Remove the old one, and write the new one in its place."""
        if (self.path / name).exists():
            remove(self.path / name)
        partial = super().write(name, manifest, contents)
        os.rename(partial, self.path / name)
        return self.path / name

    def publish(self, partial: Path, final: Path) -> None:
        """It is there already."""


# What the children do.


def say(word: str, number: int) -> None:
    """Tell the parent, in one write: a killed child has said a line or not said it."""
    os.write(1, f"{word} {number}\n".encode())


def save_for_ever(place: Path, first: int, count: int, naive: bool) -> None:
    """Save one after the other, every step twice, and prune."""
    store = CheckpointStore(place)
    if naive:
        store._place = NaivePlace(store.path, store._files)
    for save in range(first, first + count):
        say("begin", save)
        save_number(store, save, step=save // 2, size=KILL_SIZE)
        say("end", save)
        store.prune(keep=2)
        say("pruned", save)


def save_with_limit(place: Path, limit: int) -> None:
    """Save with a limit on the size of a file."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    try:
        save_number(CheckpointStore(place), 2, size=KILL_SIZE)
    except CheckpointError as error:
        say("refused", 2)
        print(error, flush=True)
    else:
        say("end", 2)


def hold(place: Path) -> None:
    """Be the writer of a run until killed."""
    run = RunDirectory.create(place, "CartPole-v1", "dqn", 0)
    save_number(run.checkpoints, 1)
    say("holding", os.getpid())
    time.sleep(TIMEOUT)


def read_for_ever(place: Path, seconds: float) -> None:
    """Load the last one and every other one, again and again, and count what comes of it."""
    store = CheckpointStore(place)
    deadline = time.monotonic() + seconds
    last = older = gone = wrong = 0
    newest = 0
    while time.monotonic() < deadline:
        found = which(store)
        # `last` is never pruned, and never goes back.
        if isinstance(found, int) and found >= newest:
            newest, last = found, last + 1
        else:
            wrong += 1
            print(f"last: {found}", flush=True)
        for path in store.list():
            try:
                checkpoint = store.load(path)
            except CheckpointError:
                gone += 1  # it was pruned between the two lines above
            else:
                older += 1
                wrong += not is_save(checkpoint, checkpoint.counters["save"])
    for word, number in (("last", last), ("older", older), ("gone", gone), ("wrong", wrong)):
        say(word, number)


# What the parent does.


@contextmanager
def child(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Start one of the roles, and see to it that it is gone in the end."""
    command = [sys.executable, "-m", __spec__.name, *map(str, arguments)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=ROOT, preexec_fn=end_with_harness
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait(TIMEOUT)
        if process.stdout is not None:
            process.stdout.close()


def output(process: subprocess.Popen[str]) -> list[str]:
    """Wait for the end of a child, and return the lines that it said."""
    text, _ = process.communicate(timeout=TIMEOUT)
    return text.splitlines()


def kill_while_saving(
    root: Path, tally: Tally, kills: int, seed: int = 0, naive: bool = False
) -> None:
    """Kill a process that saves at seeded random times, until so many kills landed in a save."""
    rng = random.Random(seed)
    place = root / "killed"
    shutil.rmtree(place, ignore_errors=True)
    landed, first, attempts = 0, 2, 0
    while landed < kills and attempts < 4 * kills:
        attempts += 1
        with child("save", place, first, 10**6, naive) as process:
            assert process.stdout is not None
            process.stdout.readline()  # it has begun: what comes now is saving, not starting
            time.sleep(rng.uniform(0.0, 0.25))
            process.send_signal(signal.SIGKILL)
            lines = [f"begin {first}", *output(process)]
            assert process.returncode == -signal.SIGKILL
        word, number = lines[-1].split()
        save = int(number)
        ended = [int(line.split()[1]) for line in lines if line.startswith("end")]
        # What was there before the save that was going on, and that save itself.
        old = ended[-1] if ended else (first - 1 if first > 2 else None)
        during = word == "begin"
        found: int | str | None = which(CheckpointStore(place), KILL_SIZE)
        if isinstance(found, str) and old is None and not (place / "last.json").exists():
            found = None  # nothing was ever saved
        ok = found in ((old, save) if during else (old,))
        state = "new" if found == save and during else "old" if ok else "neither"
        landed += during
        leftover = any(path.name.startswith(".step") for path in place.glob(".*"))
        where = "during a save" if during else "between saves" if word == "pruned" else "in prune"
        tally.counts[f"landed {where}"] += 1
        tally.counts["left an unfinished directory"] += leftover
        tally.add(state, ok, found=found, old=old, save=save, word=word, attempt=attempts)
        if not ok:
            shutil.rmtree(place)
            first = 2
            continue
        # The next child goes on from what is there now, so that its first save has an old one.
        first = found + 1 if isinstance(found, int) else 2
    tally.figures["kills_in_a_save"] = landed


def no_kill(root: Path, tally: Tally, saves: int) -> None:
    """The same child without a kill."""
    place = root / "unharmed"
    with child("save", place, 2, saves, False) as process:
        lines = output(process)
    ended = [line for line in lines if line.startswith("end")]
    found = which(CheckpointStore(place), KILL_SIZE)
    ok = process.returncode == 0 and len(ended) == saves and found == saves + 1
    left = [name for name in os.listdir(place) if name.startswith(".step")]
    tally.add("no fault", ok and not left, found=found, left=left)


def limit_file_size(root: Path, tally: Tally, limits: list[int]) -> None:
    """Save with less and less room for a file."""
    for limit in limits:
        place = root / f"limit-{limit}"
        save_number(CheckpointStore(place), 1, size=KILL_SIZE)
        with child("limit", place, limit) as process:
            lines = output(process)
        refused = bool(lines) and lines[0] == "refused 2"
        found = which(CheckpointStore(place), KILL_SIZE)
        ok = found == (1 if refused else 2) and process.returncode == 0
        ok = ok and (not refused or "full" in "".join(lines))
        ok = ok and not [name for name in os.listdir(place) if name.startswith(".step")]
        tally.add("refused" if refused else "saved", ok, limit=limit, found=found)
        shutil.rmtree(place)


def fill_the_disk(root: Path, tally: Tally, step: int) -> bool:
    """Save on a file system of 3 MB with ever more of it taken; False if none can be mounted."""
    mount = root / "tiny"
    mount.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(mount)]
    if subprocess.run(command, capture_output=True, timeout=TIMEOUT).returncode != 0:
        return False
    try:
        for taken in range(0, 3_000_000, step):
            place = mount / "store"
            shutil.rmtree(place, ignore_errors=True)
            (mount / "ballast").unlink(missing_ok=True)
            save_number(CheckpointStore(place), 1, size=100_000)
            free = os.statvfs(mount).f_bavail * os.statvfs(mount).f_frsize
            (mount / "ballast").write_bytes(b"x" * min(taken, free))
            refused = False
            try:
                save_number(CheckpointStore(place), 2, step=10, size=1_000_000)
            except CheckpointError as error:
                refused = "full" in str(error)
            size = 100_000 if refused else 1_000_000
            found = which(CheckpointStore(place), size)
            tally.add(
                "refused" if refused else "saved", found == (1 if refused else 2), taken=taken
            )
    finally:
        subprocess.run(["umount", str(mount)], check=True, timeout=TIMEOUT)
    return True


def two_writers(root: Path, tally: Tally, times: int) -> None:
    """A second writer is refused while the first lives, and welcome as soon as it was killed."""
    for number in range(times):
        place = root / f"run-{number}"
        with child("hold", place) as process:
            assert process.stdout is not None
            said = process.stdout.readline()
            try:
                RunDirectory.open(place, writable=True)
                outcome, ok = "let in", False
            except RunLockedError as error:
                outcome = "refused"
                ok = error.pid == process.pid and str(process.pid) in str(error)
            tally.add(outcome, ok and said == f"holding {process.pid}\n")
            RunDirectory.open(place)  # reading is free
            process.send_signal(signal.SIGKILL)
            process.wait(TIMEOUT)
        with RunDirectory.open(place, writable=True) as run:
            tally.add("let in after its death", run.writable and which(run.checkpoints) == 1)


def prune_while_loading(root: Path, tally: Tally, seconds: float, readers: int = 2) -> None:
    """Save over, save anew and prune as fast as can be, while other processes load."""
    place = root / "pruned"
    store = CheckpointStore(place)
    save_number(store, 2, step=1)
    children = [child("read", place, seconds) for _ in range(readers)]
    processes = [each.__enter__() for each in children]
    try:
        save, pruned, lost = 2, 0, 0
        while any(process.poll() is None for process in processes):
            save += 1
            save_number(store, save, step=save // 2)
            pruned += len(store.prune(keep=1 + save % 3))
            lost += store.last() not in store.list()
        tally.figures["saves"] = tally.figures.get("saves", 0) + save - 1
        tally.figures["pruned"] = tally.figures.get("pruned", 0) + pruned
        tally.add("writer", lost == 0, lost=lost)
        for process in processes:
            lines = output(process)
            counts = {line.split()[0]: int(line.split()[1]) for line in lines[-4:]}
            tally.figures.setdefault("loads", []).append(counts)
            ok = process.returncode == 0 and counts["wrong"] == 0 and counts["last"] > 0
            tally.add("reader", ok, lines=lines[:5])
    finally:
        for each in children:
            each.__exit__(None, None, None)


def main() -> None:
    """Play the role that the command line names."""
    role, place, *rest = sys.argv[1:]
    if role == "save":
        save_for_ever(Path(place), int(rest[0]), int(rest[1]), rest[2] == "True")
    elif role == "limit":
        save_with_limit(Path(place), int(rest[0]))
    elif role == "hold":
        hold(Path(place))
    elif role == "read":
        read_for_ever(Path(place), float(rest[0]))


if __name__ == "__main__":
    main()
