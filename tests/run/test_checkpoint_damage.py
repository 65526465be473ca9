"""D6 to D10 and D12 of the fault catalogue: damaged, foreign and malicious checkpoints.

The same code as benchmarks/faults/checkpoint_faults.py, with fewer trials. Each of these has an arm
without a fault: what was mended loads again.
"""

import pytest
from benchmarks.faults import checkpoint_damage as damage
from benchmarks.faults import checkpoint_malice as malice
from benchmarks.faults.scene import Tally, save_number, which

from muster.run import CheckpointStore, reading, sealed, tensors
from muster.run import manifest as manifests


@pytest.fixture
def tally():
    return Tally("test")


def assert_all_refused(tally):
    assert tally.bad == []
    assert tally.counts["refused"] > 0
    assert tally.counts["silently accepted"] == 0


def test_a_cut_off_file_is_refused(ram, tally):
    damage.truncate(ram, tally)
    assert_all_refused(tally)


def test_a_changed_byte_in_any_header_is_refused(ram, tally):
    damage.change_headers(ram, tally, every=5)
    assert_all_refused(tally)


def test_a_flipped_bit_is_refused(ram, tally):
    damage.flip_bits(ram, tally, 150, seed=1)
    assert_all_refused(tally)


def test_files_of_another_checkpoint_are_refused(ram, tally):
    damage.swap_files(ram, tally)
    assert_all_refused(tally)


def test_missing_and_added_files_are_refused(ram, tally):
    damage.lose_and_add_files(ram, tally)
    assert_all_refused(tally)


def test_other_format_versions_are_refused_and_named(ram, tally):
    damage.other_versions(ram, tally)
    assert_all_refused(tally)


def test_malicious_checkpoints_are_refused_and_run_nothing(ram, tally):
    malice.try_all(ram, tally, only=lambda name: "big" not in name, load=malice.load_here)
    assert_all_refused(tally)
    assert tally.figures["executions"] == 0
    assert tally.counts["trials"] > 60


@pytest.mark.timeout(600)
def test_big_malicious_checkpoints_take_no_more_memory_than_twice_their_size(ram, tally):
    malice.try_all(ram, tally, only=lambda name: "big" in name and "10**6" in name)
    assert_all_refused(tally)
    assert tally.counts["trials"] == 2 + 2


@pytest.mark.timeout(600)
def test_loading_takes_twice_the_size_of_the_files_in_memory(ram, tally):
    malice.memory_of_a_good_one(ram, tally, 40)
    assert tally.bad == []


def test_headers_changed_at_random_never_crash_the_reader(ram, tally):
    malice.fuzz_headers(ram, tally, 200, seed=1)
    assert tally.bad == []


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("a named pipe", "policy.safetensors is not a regular file"),
        ("a link to a file", "policy.safetensors is a symbolic link"),
        ("a link to a directory", "step-20 is a symbolic link"),
    ],
)
def test_what_is_no_plain_file_is_called_so(ram, case, said):
    save_number(CheckpointStore(ram / "checkpoints"), 1)
    malice.cases(ram / "canary")[case](ram)
    assert said in malice.load_here(ram / malice.MALICIOUS)["error"]


def test_damage_is_found_before_anything_is_parsed(ram, monkeypatch):
    store = CheckpointStore(ram)
    path = save_number(store, 1)
    file = path / "policy.safetensors"
    data = bytearray(file.read_bytes())
    data[20] ^= 1
    file.write_bytes(data)
    monkeypatch.setattr(tensors, "decode", lambda data: pytest.fail("parsed"))
    assert "policy.safetensors does not match its sha256" in str(which(store))


def _trusting(monkeypatch):
    monkeypatch.setattr(manifests, "check_seal", lambda data: None)


def _blind_to_extras(monkeypatch):
    class NoEntries:
        def __enter__(self):
            return iter(())

        def __exit__(self, *_):
            pass

    monkeypatch.setattr(reading.os, "scandir", lambda directory: NoEntries())


@pytest.mark.parametrize(
    ("weaken", "trial"),
    [
        (_trusting, lambda root, tally: damage.flip_bits(root, tally, 150)),
        (_trusting, lambda root, tally: damage.change_headers(root, tally, every=5)),
        (_blind_to_extras, damage.lose_and_add_files),
        (lambda patch: patch.setattr(sealed, "_no_key_twice", dict), None),
        (
            lambda patch: patch.setattr(manifests, "FORMAT_VERSION", 2),
            damage.other_versions,
        ),
    ],
    ids=["seal, flips", "seal, headers", "extra files", "keys twice", "version"],
)
def test_each_check_is_missed_when_it_is_taken_out(ram, tally, monkeypatch, weaken, trial):
    if trial is None:
        with pytest.raises(ValueError, match="twice"):
            sealed.parse(b'{"a": 1, "a": 2}', 100, 100)
        weaken(monkeypatch)
        assert sealed.parse(b'{"a": 1, "a": 2}', 100, 100) == {"a": 2}
        return
    weaken(monkeypatch)
    trial(ram, tally)
    assert tally.bad
