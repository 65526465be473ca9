"""The best checkpoint: weights and score together, where no regular checkpoint is written."""

import numpy as np
import pytest
from benchmarks.faults.scene import parts_of, save_number

from muster.errors import OptionError
from muster.run import BestCheckpoint, CheckpointError, CheckpointStore


def keep(best, number, score):
    return best.save(number * 10, parts_of(number), {"env_step": number * 10}, {}, score)


def test_there_is_none_before_the_first_evaluation(ram):
    best = BestCheckpoint(ram)
    assert (best.path(), best.load(), best.score()) == (None, None, None)


def test_the_best_is_what_was_saved_last_with_its_score(ram):
    best = BestCheckpoint(ram)
    first = keep(best, 1, 12.5)
    assert (best.path(), best.score()) == (first, 12.5)
    second = keep(best, 2, np.float32(13.0))
    again = BestCheckpoint(ram)
    assert (again.path(), again.score()) == (second, 13.0)
    assert not first.exists(), "only the best one is kept"


def test_regular_checkpoints_of_the_same_step_leave_it_alone(ram):
    store, best = CheckpointStore(ram), BestCheckpoint(ram)
    save_number(store, 1)
    keep(best, 2, 1.0)
    last = save_number(store, 2)
    store.prune(keep=1)
    assert store.last() == last and best.score() == 1.0
    assert best.path() != last and best.load().step == last_step(last)


def last_step(path):
    return int(path.name.removeprefix("step-"))


def test_the_best_is_never_the_last(ram):
    store, best = CheckpointStore(ram), BestCheckpoint(ram)
    last = save_number(store, 1)
    keep(best, 9, 1.0)
    assert store.last() == last and store.list() == [last]


@pytest.mark.parametrize("score", [float("nan"), float("inf"), -float("inf")])
def test_a_score_is_finite(ram, score):
    with pytest.raises(OptionError, match="score"):
        keep(BestCheckpoint(ram), 1, score)


def test_a_checkpoint_without_a_score_is_refused_as_the_best(ram):
    save_number(CheckpointStore(ram / "best"), 1)
    with pytest.raises(CheckpointError, match="no score"):
        BestCheckpoint(ram).score()
