"""EpisodeLog: what a line says of the episodes since the line before, and the window of 100."""

import numpy as np
import pytest

from muster.envs.step_metrics import MOST_NAMES, StepMetrics
from muster.errors import MusterWarning
from muster.workers import metric_table
from muster.workers.episode_log import WINDOW, EndedEpisodes, EpisodeLog


def test_each_episode_is_in_one_line():
    log = EpisodeLog()
    log.add(EndedEpisodes.of([(1.0, 10), (3.0, 20)]))
    log.add(EndedEpisodes.of([]))
    log.add(EndedEpisodes.of([(5.0, 30)]))
    assert log.take() == {"collect/episodes": 3, "collect/return": 3.0, "collect/length": 20.0}
    assert log.take() == {}
    log.add(EndedEpisodes.of([(7.0, 1)]))
    assert log.take()["collect/return"] == 7.0


def test_the_window_is_of_the_last_hundred_whatever_was_written():
    log, seen = EpisodeLog(), []
    assert log.window() == {}
    for number in range(3 * WINDOW + 7):
        log.add(EndedEpisodes.of([(float(number), 1)]))
        seen.append(float(number))
        if number % 9 == 0:
            log.take()
        assert log.window()["collect/return_100"] == np.mean(seen[-WINDOW:])


def test_it_goes_on_from_its_state():
    one, other = EpisodeLog(), EpisodeLog()
    one.add(EndedEpisodes.of([(1.0, 10), (3.0, 20)]))
    other.load_state_dict(one.state_dict())
    assert (other.window(), other.take()) == (one.window(), one.take())


def test_metrics_in_shared_memory_are_those_written_last():
    table = np.zeros(metric_table.SIZE, metric_table.ROW)
    assert metric_table.read(table) == {}
    full = {f"größe {k:02}": (k / 3, k) for k in range(MOST_NAMES)}
    assert metric_table.write(table, full) == metric_table.SIZE
    assert metric_table.read(table) == full
    metric_table.write(table, {"one": (0.5, 2)})
    assert metric_table.read(table) == {"one": (0.5, 2)}
    metric_table.write(table, {})
    assert metric_table.read(table) == {}


def test_an_environment_that_makes_up_names_does_not_fill_the_memory():
    metrics = StepMetrics("an env", 2)
    with pytest.warns(MusterWarning) as said:
        for k in range(100):
            infos = [{"metrics": {f"name {k}": 1.0, "x" * 65: 1.0}}, {"metrics": [k]}]
            metrics.note(infos, ended=[])
    assert len(metrics.take(0, 2)) == MOST_NAMES
    assert len(said) == 3, "too many names, a name that is too long, and no dict"
    assert metrics.take(0, 2) == {}
