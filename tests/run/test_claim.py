"""Who may write into a run directory: exactly one, also where the file system has no locks."""

import errno
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import asdict, replace

import pytest

from muster.run import RunDirectory, RunDirectoryError, RunLockedError
from muster.run.claim import DEAD_AFTER_SECONDS, LOCK, WRITER, Claim, RunWriter
from muster.run.lock import FileLock
from muster.run.new_run import check_new

NO_LOCKS = """
import errno, fcntl
def refuse(fd, how):
    raise OSError(errno.ENOLCK, "No locks available")
fcntl.flock = refuse
"""
HOLD = """
import sys
from muster.run import RunDirectory, RunDirectoryError
sys.stdin.readline()  # all begin at once
try:
    run = {call}
except RunDirectoryError as error:
    print("refused", error, flush=True)
else:
    print("writes", flush=True)
    sys.stdin.readline()
    run.close()
"""
CALLS = {
    "new": 'RunDirectory.create("run", "e", "a", 0)',
    "resume": 'RunDirectory.open("run", writable=True)',
}


def hold(place, call, locks):
    program = ("" if locks else NO_LOCKS) + HOLD.format(call=CALLS[call])
    return subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=place,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.fixture(params=[True, False], ids=["locks", "no locks"])
def locks(request):
    return request.param


@pytest.mark.parametrize("call", CALLS)
def test_of_several_at_once_exactly_one_writes_and_the_others_are_told_who(tmp_path, call, locks):
    if call == "resume":
        RunDirectory.create(tmp_path / "run", "e", "a", 0).close()
    everybody = [hold(tmp_path, call, locks) for _ in range(4)]
    try:
        for each in everybody:
            each.stdin.write("\n")
            each.stdin.flush()
        said = {each.pid: each.stdout.readline() for each in everybody}
        (writer,) = [pid for pid, line in said.items() if line.startswith("writes")]
        for pid in said.keys() - {writer}:
            name = f"process {writer} on {socket.gethostname()}, since 20"
            assert name in said[pid], said
        with pytest.raises(RunLockedError, match=f"process {writer} on"):
            RunDirectory.open(tmp_path / "run", writable=True)
    finally:
        for each in everybody:
            each.communicate("\n", timeout=300)
    RunDirectory.open(tmp_path / "run", writable=True).close()
    assert not (tmp_path / "run" / WRITER).exists()


def dead():
    """Return the record of a process of this machine that has ended."""
    return replace(RunWriter.here(), started=RunWriter.here().started + 1)


@pytest.mark.parametrize("before", [None, "", dead], ids=["none", "unwritten", "of a dead one"])
def test_who_comes_between_a_lock_and_its_record_is_told_who_all_the_same(tmp_path, before):
    run = tmp_path / "run"
    RunDirectory.create(run, "e", "a", 0).close()
    if before is not None:
        (run / WRITER).write_text(before and json.dumps(asdict(before())))
    with FileLock(run / LOCK):
        late = threading.Timer(0.2, record_of, (run, RunWriter.here(), 0))
        late.start()
        with pytest.raises(RunLockedError, match=f"process {os.getpid()} on .*, since 20"):
            RunDirectory.open(run, writable=True)
        late.join()


def test_the_marks_of_a_claim_are_no_content_of_a_new_run(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    for name in (LOCK, WRITER, f"{WRITER}.0123456789abcdef"):
        (run / name).touch()
    os.utime(run / WRITER, (0, 0))
    RunDirectory.create(run, "e", "a", 0).close()


def test_a_look_at_a_run_does_not_claim_it(tmp_path, monkeypatch):
    with RunDirectory.create(tmp_path / "run", "e", "a", 0) as run:
        monkeypatch.setattr(Claim, "acquire", lambda self: pytest.fail("a look claims the run"))
        with pytest.raises(RunLockedError, match=f"process {os.getpid()} on"):
            check_new(run.path)
    with pytest.raises(RunDirectoryError, match="is not empty"):
        check_new(run.path)


def test_who_has_had_the_lock_for_a_moment_is_waited_for(tmp_path):
    run = tmp_path / "run"
    RunDirectory.create(run, "e", "a", 0).close()
    passing = FileLock(run / LOCK)
    passing.acquire()
    threading.Timer(0.2, passing.release).start()
    RunDirectory.open(run, writable=True).close()


def test_the_run_of_a_killed_writer_is_free_at_once(tmp_path, locks):
    first = hold(tmp_path, "new", locks)
    first.stdin.write("\n")
    first.stdin.flush()
    assert first.stdout.readline() == "writes\n"
    first.send_signal(signal.SIGKILL)
    first.communicate(timeout=300)
    assert (tmp_path / "run" / WRITER).exists()
    RunDirectory.open(tmp_path / "run", writable=True).close()


def record_of(place, writer, age):
    """Write the record of somebody, whose last sign of life is so old."""
    (place / WRITER).write_text(json.dumps(asdict(writer)))
    then = time.time() - age
    os.utime(place / WRITER, (then, then))


def elsewhere():
    return replace(RunWriter.here(), host="other-host", system="another machine", nonce="theirs")


def test_a_writer_on_another_machine_is_believed_while_it_gives_signs_of_life(tmp_path):
    RunDirectory.create(tmp_path / "run", "e", "a", 0).close()
    record_of(tmp_path / "run", elsewhere(), age=DEAD_AFTER_SECONDS / 2)
    with pytest.raises(RunLockedError, match=f"process {os.getpid()} on other-host") as caught:
        RunDirectory.open(tmp_path / "run", writable=True)
    assert f"kill {os.getpid()} on other-host" in str(caught.value)
    record_of(tmp_path / "run", elsewhere(), age=DEAD_AFTER_SECONDS + 1)
    RunDirectory.open(tmp_path / "run", writable=True).close()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": "x"}', "null"])
def test_a_record_that_cannot_be_read_counts_by_its_age(tmp_path, text):
    RunDirectory.create(tmp_path / "run", "e", "a", 0).close()
    (tmp_path / "run" / WRITER).write_text(text)
    with pytest.raises(RunLockedError, match="another process"):
        RunDirectory.open(tmp_path / "run", writable=True)
    then = time.time() - DEAD_AFTER_SECONDS - 1
    os.utime(tmp_path / "run" / WRITER, (then, then))
    RunDirectory.open(tmp_path / "run", writable=True).close()


def test_a_writer_that_was_passed_over_writes_no_more(tmp_path):
    with RunDirectory.create(tmp_path / "run", "e", "a", 0) as run:
        joined = RunDirectory.join(run.path)
        joined.write_result({"a": 1})
        record_of(run.path, elsewhere(), age=0)
        for each in (run, joined):
            with pytest.raises(RunDirectoryError, match="now belongs to another writer"):
                each.write_result({"a": 2})
    assert (tmp_path / "run" / WRITER).exists(), "the record of another writer is left alone"
    assert RunDirectory.open(tmp_path / "run").read_result() == {"a": 1}


def test_a_claim_gives_signs_of_life(tmp_path, monkeypatch):
    monkeypatch.setattr("muster.run.claim.BEAT_SECONDS", 0.01)
    claim = Claim(tmp_path)
    claim.acquire()
    try:
        os.utime(tmp_path / WRITER, (0, 0))
        deadline = time.monotonic() + 300
        while (tmp_path / WRITER).stat().st_mtime == 0:
            assert time.monotonic() < deadline
    finally:
        claim.release()


def test_a_file_system_without_locks_keeps_nobody_from_working(tmp_path, monkeypatch):
    def refuse(fd, how):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with RunDirectory.create(tmp_path / "run", "e", "a", 0) as run:
        run.checkpoints.save(1, {"policy": {}}, {})
    assert RunDirectory.open(tmp_path / "run").checkpoints.load().step == 1
