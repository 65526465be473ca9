"""F1 to F4 of the fault catalogue, for the real command as a process of its own.

The same code as benchmarks/faults/signals.py, with fewer trials.
"""

import pytest
from benchmarks.faults import signals

QUICK = ("F4 during start-up",)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "kind",
    [
        each if each in QUICK else pytest.param(each, marks=pytest.mark.slow)
        for each in signals.KINDS
    ],
)
def test_a_signal_at_any_moment_ends_in_time_with_its_code_and_a_run_that_is_whole(kind, tmp_path):
    found = signals.attempt(kind, tmp_path, 3)
    assert found["examples_of_violations"] == []
    assert found["landed"] >= 2, found["outcomes"]


FIRST_DUE = 64


def left_with(folder, *names):
    checkpoints = folder / "checkpoints"
    checkpoints.mkdir()
    for name in names:
        (checkpoints / name).mkdir()
    return checkpoints


def test_without_the_directory_that_the_first_save_makes_nothing_was_ever_saved(tmp_path):
    assert signals.never_saved(tmp_path / "checkpoints", FIRST_DUE)


@pytest.mark.parametrize(
    "names",
    [(".lock", ".step-64.partial-7"), (".step-32.partial-7-2",)],
    ids=["at the first that is due", "at the one that ends a run before it"],
)
def test_only_the_unfinished_first_checkpoint_proves_that_none_was_ever_saved(tmp_path, names):
    assert signals.never_saved(left_with(tmp_path, *names), FIRST_DUE)


@pytest.mark.parametrize(
    "names",
    [
        (),
        (".lock",),
        ("step-64",),
        ("step-64", ".step-128.partial-7"),
        (".step-128.partial-7",),
        (".step-64.removed-7",),
        (".step-64.replaced-7", ".step-64.partial-7"),
        (".step-64.partial-7", "last.json"),
        (".step-64.partial-7", "best.json"),
    ],
)
def test_whatever_else_is_left_does_not_prove_it(tmp_path, names):
    assert not signals.never_saved(left_with(tmp_path, *names), FIRST_DUE)


class Ended:
    """A trial that is over, with what it left and what came of resuming it."""

    seconds_to_exit = 0.1
    seconds_in_queue = 0.0

    def __init__(self, run, never_saved):
        self.run = run
        self.never_saved = lambda: never_saved

    def end(self):
        return 130, ""

    def resumed(self):
        return "refused"


@pytest.mark.parametrize("never_saved", [True, False])
def test_a_refusal_to_resume_is_right_only_if_nothing_was_ever_saved(tmp_path, never_saved):
    tally = signals.Tally("F4")
    allowed = ("resumed", signals.NEVER_SAVED)
    signals._judge(Ended(tmp_path, never_saved), signals.Signal.SIGINT, tally, allowed)
    assert tally.report()["violations"] == (not never_saved)
