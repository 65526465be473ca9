"""D1 to D5 and D11 of the fault catalogue: a save is interrupted in every way that we know.

The same code as benchmarks/faults/checkpoint_faults.py, with fewer trials.
"""

import shutil

import pytest
from benchmarks.faults import checkpoint_kills as kills
from benchmarks.faults import checkpoint_writes as writes
from benchmarks.faults.scene import Tally

from muster.run import place as place_module
from muster.run.files import Files


@pytest.fixture
def tally():
    return Tally("test")


def assert_good(tally, *outcomes):
    assert tally.bad == []
    for outcome in outcomes:
        assert tally.counts[outcome] > 0, f"no trial was {outcome!r}: {tally.counts}"


@pytest.mark.timeout(600)
def test_a_kill_in_a_save_leaves_the_old_one_or_the_new_one(tmp_path, tally):
    kills.no_kill(tmp_path, tally, 4)
    kills.kill_while_saving(tmp_path, tally, 5, seed=1)
    assert_good(tally, "no fault", "landed during a save", "old")
    assert tally.figures["kills_in_a_save"] == 5


@pytest.mark.timeout(600)
def test_the_same_kills_find_fault_with_a_save_in_place(tmp_path, tally):
    for seed in range(10):  # one is enough, and the first mostly has it
        kills.kill_while_saving(tmp_path, tally, 4, seed=seed, naive=True)
        if tally.bad:
            break
    assert tally.counts["neither"] > 0


@pytest.mark.parametrize("scenario", writes.SCENARIOS)
def test_when_any_one_call_fails_the_old_one_or_the_new_one_is_there(ram, tally, scenario):
    writes.fail_each_call(ram, tally, [scenario])
    assert tally.counts["no fault"] == len(writes.MODES)
    assert_good(tally, "old")
    assert tally.counts["trials"] > 30 or scenario == "best"


def test_a_system_that_takes_little_at_a_time_gets_it_all(ram, tally):
    writes.short_writes(ram, tally)
    assert_good(tally, "found 1")


def test_a_power_cut_after_any_call_leaves_the_old_one_or_the_new_one(ram, tally):
    writes.cut_the_power(ram, tally, images=8)
    assert_good(tally, "old", "new")


@pytest.mark.parametrize("call", ["fsync", "fsync_dir"])
def test_a_save_that_does_not_sync_is_found_out(ram, tally, monkeypatch, call):
    model = writes.DiskModel
    monkeypatch.setattr(model, call, getattr(Files, call))  # done, but the model is not told
    writes.cut_the_power(ram, tally, images=4)
    assert tally.counts["neither"] > 0


def test_a_save_that_removes_the_old_one_too_early_is_found_out(ram, tally, monkeypatch):
    def publish(self, partial, final):
        if final.exists():
            shutil.rmtree(final)
        self._files.rename(partial, final)
        self._files.fsync_dir(self.path)

    monkeypatch.setattr(place_module.CheckpointPlace, "publish", publish)
    writes.fail_each_call(ram, tally, ["same step"])
    assert tally.bad


@pytest.mark.timeout(600)
def test_a_limit_on_the_size_of_files_is_an_error_and_no_loss(tmp_path, tally):
    kills.limit_file_size(tmp_path, tally, [100_000, 10**7])
    assert_good(tally, "refused", "saved")


@pytest.mark.timeout(600)
def test_a_second_writer_is_refused_by_name_until_the_first_is_dead(tmp_path, tally):
    kills.two_writers(tmp_path, tally, 1)
    assert_good(tally, "refused", "let in after its death")


@pytest.mark.timeout(600)
def test_loading_goes_on_while_another_process_saves_and_prunes(ram, tally):
    kills.prune_while_loading(ram, tally, seconds=1.5, readers=2)
    assert_good(tally, "reader", "writer")
    assert tally.figures["pruned"] > 5
