"""EpisodeLog: what a line says of the episodes since the line before, and the window of 100."""

import numpy as np

from muster.workers.episode_log import WINDOW, Ended, EpisodeLog


def test_each_episode_is_in_one_line():
    log = EpisodeLog()
    log.add(Ended.of([(1.0, 10), (3.0, 20)]))
    log.add(Ended.of([]))
    log.add(Ended.of([(5.0, 30)]))
    assert log.take() == {"collect/episodes": 3, "collect/return": 3.0, "collect/length": 20.0}
    assert log.take() == {}
    log.add(Ended.of([(7.0, 1)]))
    assert log.take()["collect/return"] == 7.0


def test_the_window_is_of_the_last_hundred_whatever_was_written():
    log, seen = EpisodeLog(), []
    assert log.window() == {}
    for number in range(3 * WINDOW + 7):
        log.add(Ended.of([(float(number), 1)]))
        seen.append(float(number))
        if number % 9 == 0:
            log.take()
        assert log.window()["collect/return_100"] == np.mean(seen[-WINDOW:])


def test_it_goes_on_from_its_state():
    one, other = EpisodeLog(), EpisodeLog()
    one.add(Ended.of([(1.0, 10), (3.0, 20)]))
    other.load_state_dict(one.state_dict())
    assert (other.window(), other.take()) == (one.window(), one.take())
