"""What several files about async mode need."""

import threading

import pytest

LONG = 200.0
"""Seconds after which a test that waits in vain has failed."""


def names_of_threads():
    return sorted(thread.name for thread in threading.enumerate())


@pytest.fixture(autouse=True)
def no_thread_is_left():
    before = names_of_threads()
    yield
    assert names_of_threads() == before
