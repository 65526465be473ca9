"""Calls of node actors that find no room in an object store: they wait for it, and not for ever."""

import time

import pytest

from muster import ClusterError

ray = pytest.importorskip("ray")


@pytest.fixture
def calls(monkeypatch):
    from muster.engines.ray import calls

    monkeypatch.setattr(calls.ray, "get", lambda answer, timeout: answer)
    return calls


def full(kind, times):
    """Return a call that finds no room so many times."""
    made = []

    def call():
        made.append(time.monotonic())
        if len(made) <= times:
            raise kind("full")
        return len(made)

    return call


KINDS = [ray.exceptions.ObjectStoreFullError, ray.exceptions.OutOfDiskError]


@pytest.mark.parametrize("kind", KINDS)
def test_a_call_that_finds_no_room_is_made_again(calls, kind):
    assert calls.call_until_answered(full(kind, 2)) == 3
    assert calls.start_call(full(kind, 1)) is None


@pytest.mark.parametrize("kind", KINDS)
def test_a_call_that_never_finds_room_ends_the_run_in_three_lines(calls, monkeypatch, kind):
    monkeypatch.setattr(calls, "_ROOM_SECONDS", 0.25)
    with pytest.raises(ClusterError) as ended:
        calls.call_until_answered(full(kind, 10**6))
    disk = ", nor on the disk that it spills to" if kind.__name__ == "OutOfDiskError" else ""
    assert str(ended.value).splitlines() == [
        "an object store of the Ray cluster is full",
        f"  why: messages between nodes found no room in it for 0.25 s{disk}",
        "  try: ray memory, which shows who fills it; when there is room again, the same command "
        "with --resume",
    ]


def test_a_call_that_nobody_wants_any_more_is_not_made_again(calls):
    wanted = iter([True, True, False])
    call = full(ray.exceptions.ObjectStoreFullError, 10**6)
    assert calls.call_until_answered(call, is_wanted=lambda: next(wanted)) is None
