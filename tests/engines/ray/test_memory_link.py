"""The sockets that carry shared memory between machines: whom they trust, and what they write."""

import contextlib
import socket
import struct
import threading

import pytest

ray = pytest.importorskip("ray")

from muster.engines.base import ROW  # noqa: E402
from muster.engines.local import authentication, handshake  # noqa: E402
from muster.engines.local.handshake import HandshakeError, LinkRequest, Secrets  # noqa: E402
from muster.engines.memory import SharedMemory  # noqa: E402
from muster.engines.ray import memory_link  # noqa: E402
from muster.engines.ray.memory_link import MemoryLink, MemoryServer  # noqa: E402
from muster.engines.ray.replicas import MemoryReplica, OtherMachine, _Route  # noqa: E402

KNOWN = Secrets.fresh("1")
HOST = "127.0.0.1"
AT = 4 * ROW
"""Where arrays begin, behind the rows of four nodes."""


@pytest.fixture
def replica():
    memory = SharedMemory.create()
    replica = MemoryReplica(memory)
    yield replica
    vars(replica).clear()  # pytest still has it when leftovers are looked for, with its mapping
    memory.close()


@pytest.fixture
def server(replica):
    server = MemoryServer(HOST, 1, KNOWN, replica.write)
    yield server
    server.close()


def link(server, known=KNOWN, to_node=1):
    return MemoryLink(HOST, server.port, 0, to_node, known)


def test_what_is_sent_is_written_and_then_counted(server, replica):
    mine = link(server)
    for count, text in ((1, b"first"), (2, b"second")):
        mine.send([(AT, text), (AT + 64, text[::-1])], 0, count)
        mine.wait(count)
        assert replica.count(0) == count
        assert replica.read([(AT, AT + len(text)), (AT + 64, AT + 64 + len(text))]) == [
            (AT, text),
            (AT + 64, text[::-1]),
        ]
    assert replica.last_of(0) == ([(AT, b"second"), (AT + 64, b"dnoces")], 0, 2)
    mine.close()


def test_a_publication_that_comes_twice_or_late_is_written_once(replica):
    replica.write([(AT, b"one")], 0, 1)
    replica.write([(AT, b"two")], 0, 2)
    replica.write([(AT, b"one")], 0, 1)  # the slower way
    replica.write([(AT, b"xxx")], 0, 2)
    assert replica.read([(AT, AT + 3)]) == [(AT, b"two")]
    assert replica.last_of(0) == ([(AT, b"two")], 0, 2)


@pytest.mark.parametrize(
    ("known", "to_node"),
    [
        (Secrets(KNOWN.run, b"x" * 32, KNOWN.version), 1),
        (Secrets(b"y" * 16, KNOWN.token, KNOWN.version), 1),
        (Secrets(KNOWN.run, KNOWN.token, b"2"), 1),
        (KNOWN, 2),
    ],
    ids=["token", "run", "version", "node"],
)
def test_a_link_of_another_run_version_or_node_is_refused(server, replica, known, to_node):
    with pytest.raises(OSError):
        link(server, known, to_node)
    assert replica.count(0) == 0
    link(server).close()  # the server goes on


def test_a_stranger_without_the_token_gets_nothing_written(server, replica):
    publication = struct.pack("<qqqqq", 0, 1, 1, AT, 4) + b"evil"
    with socket.create_connection((HOST, server.port), 5) as stranger:
        stranger.sendall(publication * 10)
        stranger.settimeout(30)
        with contextlib.suppress(ConnectionResetError):
            while stranger.recv(4096):  # a refusal, then the end
                pass
    # One that knows run and version, and guesses the proof.
    with socket.create_connection((HOST, server.port), 5) as stranger:
        hello = LinkRequest.fresh(0, 0, 1, 0)
        stranger.sendall(handshake.pack_link_request(hello, KNOWN))
        stranger.settimeout(30)
        assert len(stranger.recv(handshake.ANSWER_SIZE, socket.MSG_WAITALL)) > 0
        stranger.sendall(b"p" * handshake.PROOF_SIZE + publication)
        with contextlib.suppress(ConnectionResetError):
            assert stranger.recv(8) == b""
    assert replica.count(0) == 0 and replica.nbytes < AT


def test_a_server_that_does_not_know_the_token_is_not_believed(replica):
    impostor = MemoryServer(HOST, 1, Secrets(KNOWN.run, b"x" * 32, KNOWN.version), replica.write)
    try:
        with pytest.raises(HandshakeError, match="refused"):
            link(impostor)
    finally:
        impostor.close()


@pytest.mark.parametrize(
    "head",
    [
        struct.pack("<qqq", 0, 1, 1 << 40),
        struct.pack("<qqq", 0, 1, -1),
        struct.pack("<qqqqq", 0, 1, 1, AT, 1 << 60),
        struct.pack("<qqqqq", 0, 1, 1, -8, 8),
    ],
    ids=["many parts", "fewer than none", "too large", "before the memory"],
)
def test_an_impossible_size_ends_the_connection_before_memory_is_taken(server, replica, head):
    mine = link(server)
    mine._sock.sendall(head)
    with pytest.raises(ConnectionError, match="closed"):
        mine.wait(1)
    mine.close()
    assert replica.count(0) == 0
    link(server).close()


def test_idle_strangers_do_not_keep_a_node_out(server, monkeypatch):
    monkeypatch.setattr(authentication, "HANDSHAKE_SECONDS", 0.5)
    idle = [socket.create_connection((HOST, server.port), 5) for _ in range(200)]
    try:
        for _ in range(100):
            try:
                link(server).close()
                return
            except OSError:
                threading.Event().wait(0.1)  # until the idle ones are sent away
        pytest.fail("no node could connect")
    finally:
        for each in idle:
            each.close()


class Asked:
    """A node actor: notes what comes by Ray calls."""

    def __init__(self):
        self.copy = self
        self.calls = []

    def remote(self, *what):
        self.calls.append(what)
        return len(self.calls)


@pytest.fixture
def by_ray(monkeypatch):
    monkeypatch.setattr("ray.get", lambda reference, timeout=None: None)
    return Asked()


def test_a_route_takes_the_socket_and_asks_ray_for_nothing(server, replica, by_ray):
    route = _Route(0, OtherMachine([by_ray], 1, HOST, server.port), KNOWN)
    for count in (1, 2, 3):
        route.begin(([(AT, b"%d" % count)], 0, count))
        assert route.finish()
        assert replica.count(0) == count
    assert by_ray.calls == []
    route.close()


def test_a_route_whose_socket_breaks_or_is_silent_goes_on_by_ray(replica, by_ray, monkeypatch):
    monkeypatch.setattr(memory_link, "ANSWER_SECONDS", 0.2)
    speaks, has_written = threading.Event(), threading.Event()

    def write(parts, node, count):
        speaks.wait(30)
        replica.write(parts, node, count)
        has_written.set()

    server = MemoryServer(HOST, 1, KNOWN, write)
    route = _Route(0, OtherMachine([by_ray], 1, HOST, server.port), KNOWN)
    what = ([(AT, b"one")], 0, 1)
    route.begin(what)
    assert route.finish() and by_ray.calls == [what]
    speaks.set()
    assert has_written.wait(30)
    server.close()
    again = ([(AT, b"two")], 0, 2)
    route.begin(again)
    assert route.finish() and by_ray.calls == [what, again]


def test_a_route_to_a_machine_that_does_not_listen_goes_by_ray(by_ray):
    for port in (0, 1):
        route = _Route(0, OtherMachine([by_ray], 1, HOST, port), KNOWN)
        route.begin(([(AT, b"one")], 0, 1))
        assert route.finish()
    assert len(by_ray.calls) == 2


def test_nothing_is_written_after_a_server_was_closed(replica):
    begins, may_go_on = threading.Event(), threading.Event()

    def write(parts, node, count):
        begins.set()
        may_go_on.wait(30)
        replica.write(parts, node, count)

    server = MemoryServer(HOST, 1, KNOWN, write)
    lost, other = link(server), link(server)
    lost.send([(AT, b"one")], 0, 1)
    assert begins.wait(30)
    closing = threading.Thread(target=server.close)
    closing.start()
    may_go_on.set()
    closing.join(30)
    assert replica.count(0) == 1, "what was being written when it was closed is written"
    with pytest.raises(OSError):
        other.send([(AT, b"two")], 0, 2)
        other.wait(2)
    assert replica.count(0) == 1
    for each in (lost, other):
        each.close()
