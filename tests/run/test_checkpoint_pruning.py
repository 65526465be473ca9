"""CheckpointStore: what is pruned, what dead writers left, and what nobody may remove."""

import os
import subprocess
import sys

import pytest
from benchmarks.faults.scene import is_save, save_number, which
from listing import hidden, names

from muster.errors import MusterWarning, OptionError
from muster.run import CheckpointError, CheckpointStore
from muster.run.files import Files


def test_prune_keeps_the_newest_and_the_last(ram):
    store = CheckpointStore(ram)
    for save in (1, 2, 6, 7, 8, 9, 4):
        save_number(store, save)
    removed = store.prune(keep=2)
    assert sorted(names(removed)) == ["step-10", "step-20", "step-60", "step-70"]
    assert names(store.list()) == ["step-40", "step-80", "step-90"]
    assert hidden(ram) == []
    assert store.prune(keep=2) == []
    assert which(store) == 4


def test_prune_counts_good_ones_only_and_leaves_damaged_ones(ram):
    store = CheckpointStore(ram)
    paths = [save_number(store, save) for save in (1, 2, 3, 4)]
    for path in paths[2:]:
        file = path / "replay.safetensors"
        file.write_bytes(file.read_bytes()[:-1] + b"?")
    assert names(store.prune(keep=1)) == ["step-10"]
    assert names(store.list()) == ["step-20"]
    assert paths[3].exists()
    with pytest.raises(CheckpointError) as caught:
        store.load()
    assert caught.value.offer == paths[1]


def test_prune_never_takes_the_only_good_one(ram):
    store = CheckpointStore(ram)
    paths = [save_number(store, save) for save in (1, 2)]
    (paths[1] / "manifest.json").unlink()
    assert store.prune(keep=1) == []
    assert is_save(store.load(paths[0]), 1)


def test_prune_takes_nothing_while_it_cannot_tell_what_to_keep(ram):
    store = CheckpointStore(ram)
    for save in (1, 2, 3):
        save_number(store, save)
    (ram / "last.json").write_text("{}")
    with pytest.warns(MusterWarning, match="no checkpoint is pruned"):
        assert store.prune(keep=1) == []
    assert len(store.list()) == 3


@pytest.mark.parametrize("keep", [0, -1])
def test_prune_keeps_at_least_one(ram, keep):
    with pytest.raises(OptionError, match="keep"):
        CheckpointStore(ram).prune(keep)


def test_what_a_dead_writer_left_is_removed_by_the_next_save(ram):
    store = CheckpointStore(ram)
    save_number(store, 1)
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait(30)
    for kind in ("partial", "removed"):
        folder = ram / f".step-50.{kind}-{dead.pid}"
        folder.mkdir()
        (folder / "policy.safetensors").write_bytes(b"half")
    (ram / f".step-60.partial-{os.getpid()}").mkdir()
    assert names(store.list()) == ["step-10"]
    assert which(store) == 1
    save_number(store, 2)
    assert hidden(ram) == []


def test_what_a_living_writer_is_making_is_left_alone(ram):
    store = CheckpointStore(ram)
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        folder = ram / f".step-50.partial-{other.pid}"
        folder.mkdir()
        save_number(store, 1)
        store.prune(1)
        assert folder.exists()
    finally:
        other.kill()
        other.wait(30)
    save_number(store, 2)
    assert not folder.exists()


def test_what_was_moved_aside_comes_back_if_nothing_took_its_place(ram):
    store = CheckpointStore(ram)
    path = save_number(store, 1)
    path.rename(ram / f".step-10.replaced-{os.getpid()}")
    with pytest.raises(
        CheckpointError, match=r"last\.json points at step-10, which does not exist"
    ):
        store.load()
    store.clean()
    assert which(store) == 1


def test_leftovers_that_cannot_be_removed_are_told_and_do_not_stop_a_save(ram):
    class Stubborn(Files):
        def remove_tree(self, path):
            raise PermissionError(13, "not today", str(path))

    (ram / f".step-50.partial-{os.getpid()}").mkdir()
    store = CheckpointStore(ram, files=Stubborn())
    with pytest.warns(MusterWarning, match="cannot be removed yet"):
        save_number(store, 1)
    assert which(store) == 1


def test_a_checkpoint_that_is_being_read_is_not_removed(ram):
    from muster.run.reading import opened

    store = CheckpointStore(ram)
    old = save_number(store, 1)
    save_number(store, 2)
    with opened(old):
        assert store.prune(keep=1) == []
        assert is_save(store.load(old), 1)
        save_number(store, 3, step=10)  # replaced under the reader's hands
        aside = hidden(ram)
        assert len(aside) == 1
        assert len(os.listdir(ram / aside[0])) == 4
        save_number(store, 4, step=10)  # and again, beside what could not be removed
        assert hidden(ram) == aside
    assert which(store) == 4
    save_number(store, 5)
    assert hidden(ram) == []


def test_the_last_one_may_be_pruned_while_it_is_about_to_be_read(ram, monkeypatch):
    """Another process saves and prunes between two lines of `load` and of `last`."""
    from muster.run import reading

    store, writer = CheckpointStore(ram), CheckpointStore(ram)
    save_number(store, 1)
    real_load, real_is_dir = reading.load, type(ram).is_dir

    def meanwhile(save):
        monkeypatch.setattr(reading, "load", real_load)
        monkeypatch.setattr(type(ram), "is_dir", real_is_dir)
        save_number(writer, save)
        writer.prune(keep=1)

    monkeypatch.setattr(reading, "load", lambda path: meanwhile(2) or real_load(path))
    assert is_save(store.load(), 2)
    monkeypatch.setattr(type(ram), "is_dir", lambda path: meanwhile(3) or real_is_dir(path))
    assert is_save(store.load(), 3)


def test_nothing_is_removed_before_what_replaced_it_is_on_the_disk(ram):
    calls = []

    class Recorder(Files):
        broken = True

        def fsync_dir(self, path):
            if path == ram and self.broken and "exchange" in calls:
                raise OSError(5, "the name is not on the disk")
            calls.append("fsync" if path == ram else "other")
            super().fsync_dir(path)

        def exchange(self, one, other):
            calls.append("exchange")
            return super().exchange(one, other)

        def rename(self, source, target):
            calls.append("rename")
            super().rename(source, target)

        def remove_tree(self, path):
            calls.append("remove")
            super().remove_tree(path)

    files = Recorder()
    store = CheckpointStore(ram, files=files)
    save_number(store, 1)
    with pytest.raises(CheckpointError, match="not on the disk"):
        save_number(store, 2, step=10)
    assert "remove" not in calls
    assert len(hidden(ram)) == 1  # the old one
    files.broken = False
    save_number(store, 3)
    store.prune(keep=1)
    assert calls.count("remove") == 2
    for number, call in enumerate(calls):
        if call == "remove":
            renames = [n for n in range(number) if calls[n] in ("exchange", "rename")]
            assert "fsync" in calls[renames[-1] : number]
