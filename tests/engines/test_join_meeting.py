"""Ranks that meet: who is taken, who is refused, and that every rank learns of a mistake."""

import contextlib
import dataclasses
import socket
import threading
import time

import pytest
from rank_processes import TOKEN, free_address

from muster.engines.join import meeting
from muster.engines.join.meeting import Host, guest
from muster.engines.join.terms import TOKEN_FILE, terms_of
from muster.errors import MusterError, OptionError

pytestmark = pytest.mark.timeout(60)
SETTINGS = {"algo": "ppo", "lr": 0.001, "hidden": (64, 64)}


def terms(address, rank, world, token=TOKEN, seconds=10.0):
    return terms_of(address, rank, world, seconds, {"MUSTER_TOKEN": token})


class Meeting:
    """A rank 0 in a thread, and guests in others."""

    def __init__(self, world, seconds=10.0, resumes=False):
        self.address = free_address()
        self.world = world
        self.errors = {}
        self._ended = threading.Event()
        self._host = Host(terms(self.address, 0, world, seconds=seconds), SETTINGS, resumes)
        self._threads = [threading.Thread(target=self._gather)]
        self._threads[0].start()

    def _gather(self):
        try:
            self._host.gather()
            self.errors[0] = None
        except MusterError as error:
            self.errors[0] = error

    def guest(self, rank, name=None, world=None, settings=SETTINGS, **given):
        """Let a rank join, in a thread of its own."""
        name = rank if name is None else name

        def join():
            asked = terms(self.address, rank, world or self.world, **given)
            try:
                with guest(asked, settings):
                    self.errors[name] = None
                    self._ended.wait(10)
            except MusterError as error:
                self.errors[name] = error

        self._threads.append(threading.Thread(target=join))
        self._threads[-1].start()

    def wait_for(self, count):
        """Wait until this many ranks know how the meeting ended."""
        deadline = time.monotonic() + 20
        while len(self.errors) < count:
            assert time.monotonic() < deadline, self.errors
            time.sleep(0.01)
        return self.errors

    def close(self):
        self._ended.set()
        self._host.close()
        for thread in self._threads:
            thread.join(20)
            assert not thread.is_alive()


@pytest.fixture
def meet():
    with contextlib.ExitStack() as stack:

        def make(*args, **kwargs):
            return stack.enter_context(contextlib.closing(Meeting(*args, **kwargs)))

        yield make


def told(error):
    assert len(error.args) == 3 and all(error.args)
    return " ".join(error.args)


def test_ranks_meet_in_any_order(meet):
    here = meet(3)
    here.guest(2)
    here.guest(1)
    assert here.wait_for(3) == {0: None, 1: None, 2: None}


def test_another_world_is_an_error_on_every_rank(meet):
    here = meet(3)
    here.guest(1)
    here.guest(2, world=4)
    errors = here.wait_for(3)
    assert all("world=4" in told(error) and "world=3" in told(error) for error in errors.values())


def test_a_rank_that_comes_after_a_mistake_learns_of_it_at_once(meet):
    here = meet(3)
    here.guest(2, world=4)
    here.wait_for(2)
    here.guest(1)
    assert "rank 2 has world=4, rank 0 has world=3" in told(here.wait_for(3)[1])


def test_a_rank_that_is_started_twice_is_an_error_on_every_rank(meet):
    here = meet(3)
    here.guest(1)
    here.guest(1, name="again")
    errors = here.wait_for(3)
    assert all("two processes are rank 1" in told(error) for error in errors.values())
    assert "rank=2" in told(errors[0])


def test_other_settings_are_an_error_that_names_them(meet):
    here = meet(2)
    here.guest(1, settings={**SETTINGS, "lr": 0.002})
    errors = here.wait_for(2)
    assert all("lr=0.002" in told(error) and "lr=0.001" in told(error) for error in errors.values())


def test_a_new_run_and_a_resumed_one_do_not_meet(meet):
    here = meet(2)
    here.guest(1, settings=None)
    assert "resumes a run" in told(here.wait_for(2)[0])


def test_other_versions_are_an_error_on_every_rank(meet, monkeypatch):
    here = meet(2)
    mine = meeting.versions()
    answers = iter([{**mine, "torch": "1.0"}])
    monkeypatch.setattr(meeting, "versions", lambda: next(answers, mine))
    here.guest(1)
    errors = here.wait_for(2)
    assert all("torch 1.0" in told(error) for error in errors.values())


def test_a_rank_of_another_muster_is_told_so_at_once(meet):
    here = meet(2, seconds=1.0)
    other = terms(here.address, 1, 2)
    known = dataclasses.replace(other.secrets, version=b"0.0.1")
    other = dataclasses.replace(other, secrets=known)
    with pytest.raises(OptionError, match="muster") as caught, guest(other, SETTINGS):
        pass
    assert "0.0.1" in told(caught.value)
    assert "refused 1" in told(here.wait_for(1)[0])


def test_a_rank_with_another_token_is_told_so_and_ends_nothing(meet):
    here = meet(2)
    here.guest(1, name="stranger", token="another token of this length")
    assert "another token" in told(here.wait_for(1)["stranger"])
    here.guest(1)
    errors = here.wait_for(3)
    assert errors[0] is errors[1] is None


def test_a_rank_that_does_not_come_is_named_on_every_rank_in_time(meet):
    began = time.monotonic()
    here = meet(3, seconds=0.5)
    here.guest(1)
    errors = here.wait_for(2)
    assert all("rank 2 of 3 did not come" in told(error) for error in errors.values())
    assert time.monotonic() - began < 5


def test_without_rank_0_the_others_end_in_time():
    began = time.monotonic()
    nobody = terms(free_address(), 1, 2, seconds=0.3)
    with pytest.raises(OptionError, match="found no rank 0"), guest(nobody, SETTINGS):
        pass
    assert time.monotonic() - began < 5


def test_a_host_that_leaves_before_the_run_is_an_error(meet):
    here = meet(3)
    here.guest(1)
    time.sleep(0.3)
    here._host._wires[1].close()
    assert "has left" in told(here.wait_for(1)[1])
    here.guest(1, name="again")  # the first rank 1 is gone, so this one is not a second
    here.guest(2)
    assert here.wait_for(4)["again"] is None


def test_a_late_rank_is_told_that_the_run_has_begun(meet):
    here = meet(2)
    here.guest(1)
    here.wait_for(2)
    here.guest(1, name="late")
    assert "too late" in told(here.wait_for(3)["late"])


def test_strangers_that_say_nothing_do_not_keep_ranks_out(meet):
    here = meet(2)
    host, port = here.address.split(":")
    idle = [socket.create_connection((host, int(port))) for _ in range(20)]
    garbage = socket.create_connection((host, int(port)))
    garbage.sendall(b"GET / HTTP/1.1\r\n\r\n" * 20)
    here.guest(1)
    assert here.wait_for(2) == {0: None, 1: None}
    for sock in (*idle, garbage):
        sock.close()


def test_rank_0_says_when_it_cannot_listen():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(OptionError, match="cannot listen"):
            Host(terms(address, 0, 2), SETTINGS, False)
    with pytest.raises(OptionError, match="cannot listen"):
        Host(terms("192.0.2.1:29500", 0, 2), SETTINGS, False)


@pytest.mark.parametrize(
    ("join", "rank", "world", "says"),
    [
        ("127.0.0.1", 0, 2, "HOST:PORT"),
        ("127.0.0.1:x", 0, 2, "port"),
        ("127.0.0.1:70000", 0, 2, "port"),
        ("127.0.0.1:29500", None, 2, "which rank"),
        ("127.0.0.1:29500", 0, None, "how many"),
        ("127.0.0.1:29500", 2, 2, "ranks of this run are 0 to 1"),
        ("env", None, None, "MASTER_ADDR"),
    ],
)
def test_impossible_terms_are_refused(join, rank, world, says):
    with pytest.raises(OptionError) as caught:
        terms_of(join, rank, world, 60, {"MUSTER_TOKEN": TOKEN})
    assert says in told(caught.value)


def test_the_variables_of_torchrun_are_terms():
    variables = {
        "MASTER_ADDR": "::1",
        "MASTER_PORT": "29500",
        "RANK": "3",
        "WORLD_SIZE": "4",
        "MUSTER_TOKEN": TOKEN,
    }
    found = terms_of("env", None, None, 60, variables)
    assert (found.rank, found.world, found.address) == (3, 4, "[::1]:29500")
    with pytest.raises(OptionError, match="RANK"):
        terms_of("env", None, None, 60, {**variables, "RANK": "three"})


def test_a_token_is_long_and_its_file_private(tmp_path):
    for variables in ({}, {"MUSTER_TOKEN": "short"}, {TOKEN_FILE: str(tmp_path / "none")}):
        with pytest.raises(OptionError):
            terms_of("127.0.0.1:29500", 0, 2, 60, variables)
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    file.chmod(0o644)
    with pytest.raises(OptionError, match="other users"):
        terms_of("127.0.0.1:29500", 0, 2, 60, {TOKEN_FILE: str(file)})
    file.chmod(0o600)
    by_file = terms_of("127.0.0.1:29500", 0, 2, 60, {TOKEN_FILE: str(file)})
    assert by_file.secrets == terms("127.0.0.1:29500", 0, 2).secrets
