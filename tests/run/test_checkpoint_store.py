"""CheckpointStore without faults: what is kept, what is pointed at, what is pruned."""

import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from benchmarks.faults.scene import is_save, save_number, which
from listing import hidden, names

from muster.errors import OptionError
from muster.run import CheckpointError, CheckpointStore, NonFiniteStateError, RunLockedError
from muster.run import checkpoint as checkpoint_module
from muster.run.files import Files
from muster.run.lock import FileLock


def test_what_was_saved_is_loaded(ram):
    store = CheckpointStore(ram / "deep" / "checkpoints")
    path = save_number(store, 3)
    assert path == ram / "deep" / "checkpoints" / "step-30"
    loaded = store.load(path)
    assert is_save(loaded, 3)
    assert (loaded.path, loaded.step) == (path, 30)
    assert (loaded.meta["algo"], loaded.meta["env_id"]) == ("dqn", "CartPole-v1")
    assert is_save(store.load(str(path)), 3)
    assert is_save(CheckpointStore(store.path).load(), 3)
    assert sorted(os.listdir(store.path)) == [".lock", "last.json", "step-30"]
    assert sorted(os.listdir(path)) == [
        "manifest.json", "optimizer.safetensors", "policy.safetensors", "replay.safetensors"
    ]  # fmt: skip


def test_a_new_store_has_nothing_and_says_so(ram):
    store = CheckpointStore(ram / "none")
    assert (store.last(), store.list()) == (None, [])
    with pytest.raises(CheckpointError, match="there is no checkpoint"):
        store.load()
    assert not (ram / "none").exists()


def test_last_is_what_was_saved_last_not_the_highest_step(ram):
    store = CheckpointStore(ram)
    for save in (1, 5, 2):
        save_number(store, save)
    assert store.last() == ram / "step-20"
    assert names(store.list()) == ["step-10", "step-20", "step-50"]


def test_steps_are_sorted_as_numbers(ram):
    store = CheckpointStore(ram)
    for save in (100, 9, 20):
        save_number(store, save)
    assert names(store.list()) == ["step-90", "step-200", "step-1000"]


@pytest.mark.parametrize("exchange", [True, False])
def test_saving_the_same_step_again_replaces_it(ram, exchange):
    class Old(Files):
        def exchange(self, one, other):
            return exchange and super().exchange(one, other)

    store = CheckpointStore(ram, files=Old())
    for save in (1, 2, 3):
        save_number(store, save, step=7)
        assert which(store) == save
        assert names(store.list()) == ["step-7"]
        assert hidden(ram) == []


def test_a_step_may_be_a_numpy_int(ram):
    assert CheckpointStore(ram).save(np.int64(5), {}, {}).name == "step-5"


@pytest.mark.parametrize("step", [-1, True, 10**19], ids=str)
def test_a_step_is_a_count(ram, step):
    with pytest.raises(OptionError, match="step"):
        CheckpointStore(ram).save(step, {}, {})


def test_a_changed_file_is_noticed_though_it_was_good_before(ram):
    store = CheckpointStore(ram)
    path = save_number(store, 1)
    assert store.list() == [path]
    file = path / "policy.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    assert store.list() == []


def test_an_array_that_changes_while_it_is_written_is_saved_as_it_was_written(ram):
    weights = np.zeros(1000)

    class Meanwhile(Files):
        def write(self, fd, data):
            weights[:] += 1.0
            return super().write(fd, data)

    store = CheckpointStore(ram, files=Meanwhile())
    store.save(1, {"policy": {"w": weights}}, {})
    assert store.load().parts["policy"]["w"].shape == (1000,)


def test_without_a_pointer_the_newest_is_the_last_and_damage_to_it_is_not_passed_over(ram):
    store = CheckpointStore(ram)
    older, newest = save_number(store, 1), save_number(store, 2)
    (ram / "last.json").unlink()
    assert store.last() == newest
    (newest / "replay.safetensors").unlink()
    with pytest.raises(CheckpointError, match="replay") as caught:
        store.last()
    assert caught.value.offer == older


def test_a_pointer_out_of_the_store_is_refused(ram):
    from muster.run.sealed import seal

    store = CheckpointStore(ram)
    save_number(store, 1)
    (ram / "last.json").write_bytes(seal({"checkpoint": "../step-10"}))
    with pytest.raises(CheckpointError, match="does not name a checkpoint"):
        store.last()


def test_two_threads_save_one_after_the_other(ram):
    store = CheckpointStore(ram)
    errors = []

    def work(first):
        try:
            for save in range(first, first + 20, 2):
                save_number(store, save)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(first,)) for first in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == []
    assert len(store.list()) == 20
    assert hidden(ram) == []


def test_a_save_waits_for_another_writer_and_then_names_it(ram, monkeypatch):
    monkeypatch.setattr(checkpoint_module, "_LOCK_WAIT", 0.1)
    store = CheckpointStore(ram)
    save_number(store, 1)
    with FileLock(ram / ".lock"), pytest.raises(RunLockedError, match=f"process {os.getpid()}"):
        save_number(store, 2)
    save_number(store, 2)


def test_a_full_disk_is_said_and_the_old_one_stays(ram):
    class Full(Files):
        def write(self, fd, data):
            raise OSError(28, "No space left on device")

    save_number(CheckpointStore(ram), 1)
    with pytest.raises(CheckpointError, match="full") as caught:
        save_number(CheckpointStore(ram, files=Full()), 2)
    assert "step-20" in str(caught.value)
    assert isinstance(caught.value.__cause__, OSError)
    assert which(CheckpointStore(ram)) == 1
    assert hidden(ram) == []


def test_ctrl_c_in_a_save_leaves_the_old_one_and_no_rubbish(ram):
    class Interrupted(Files):
        def fsync(self, fd):
            raise KeyboardInterrupt

    save_number(CheckpointStore(ram), 1)
    with pytest.raises(KeyboardInterrupt):
        save_number(CheckpointStore(ram, files=Interrupted()), 2)
    assert which(CheckpointStore(ram)) == 1
    assert hidden(ram) == []


def test_the_offer_is_the_newest_earlier_one_then_any(ram):
    store = CheckpointStore(ram)
    paths = [save_number(store, save) for save in (1, 2, 3, 4)]
    for path, offer in ((paths[2], paths[1]), (paths[0], paths[3])):
        manifest = path / "manifest.json"
        good = manifest.read_bytes()
        manifest.write_bytes(good[:-5])
        with pytest.raises(CheckpointError) as caught:
            store.load(path)
        assert caught.value.offer == offer
        assert f"try: --from-checkpoint {offer}" in str(caught.value)
        manifest.write_bytes(good)


def test_the_offer_comes_from_where_the_damaged_one_is(ram):
    other = CheckpointStore(ram / "b")
    good, bad = save_number(other, 1), save_number(other, 2)
    (bad / "extra").touch()
    with pytest.raises(CheckpointError) as caught:
        CheckpointStore(ram / "a").load(bad)
    assert caught.value.offer == good


def test_a_store_of_damaged_ones_is_not_a_new_one(ram):
    store = CheckpointStore(ram)
    (save_number(store, 1) / "manifest.json").write_text("{}")
    (ram / "last.json").unlink()
    with pytest.raises(CheckpointError, match=r"manifest\.json"):
        store.last()


def test_a_policy_that_is_not_finite_is_refused_on_loading_too(ram, monkeypatch):
    from muster.run import reading

    store = CheckpointStore(ram)
    good = save_number(store, 1)
    with monkeypatch.context() as patch:
        patch.setattr(reading, "check_finite", lambda *_: None)
        bad = store.save(20, {"policy": {"w": np.array([1, np.nan])}}, {})
    with pytest.raises(NonFiniteStateError, match="1 of 2") as caught:
        store.load(bad)
    assert caught.value.offer == good


@pytest.mark.parametrize(
    "name", [".step-10.partial-1", "step-010", "checkpoint", "step-", "step-1x"]
)
def test_only_a_final_name_is_a_checkpoint(ram, name):
    path = save_number(CheckpointStore(ram), 1).rename(ram / name)
    with pytest.raises(CheckpointError, match="is not a checkpoint"):
        CheckpointStore(ram).load(path)
    (ram / "last.json").unlink()
    assert CheckpointStore(ram).list() == []


def test_a_store_stays_where_it_was_when_the_working_directory_changes(ram, monkeypatch):
    (ram / "elsewhere").mkdir()
    monkeypatch.chdir(ram)
    store = CheckpointStore("checkpoints")
    monkeypatch.chdir(ram / "elsewhere")
    save_number(store, 1)
    assert (ram / "checkpoints" / "step-10").is_dir()


def test_the_room_needs_neither_torch_nor_pickle_nor_a_loader_that_runs_code():
    code = (
        "import sys, muster.run;"
        "print([name for name in ('torch', 'tensorboard', 'gymnasium', 'ray', 'wandb') "
        "if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True
    )
    assert done.stdout == "[]\n"
    from pathlib import Path

    import muster.run

    words = ("pickle", "torch.load", "np.load", "eval(", "exec(", "marshal", "import torch")
    for file in Path(muster.run.__file__).parent.glob("*.py"):
        for word in words:
            assert word not in file.read_text(), f"{word} in {file.name}"


def test_no_file_stays_open(ram):
    store = CheckpointStore(ram)
    before = len(os.listdir("/proc/self/fd"))
    for save in (1, 2, 3):
        save_number(store, save)
        store.load()
    store.prune(1)
    (ram / "step-30" / "manifest.json").write_text("")
    with pytest.raises(CheckpointError):
        store.load()
    assert len(os.listdir("/proc/self/fd")) == before
