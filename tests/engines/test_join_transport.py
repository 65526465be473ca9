"""Two ranks in one process: what one publishes, sends, hangs at or loses reaches the other."""

import contextlib
import socket
import struct
import threading
import time

import pytest

from muster.engines.base import ROW
from muster.engines.join.place import place_of
from muster.engines.join.pulse import Pulse
from muster.engines.join.transport import JoinTransport
from muster.engines.join.wire import Wire
from muster.errors import ClusterError

pytestmark = pytest.mark.timeout(60)


class Noted:
    """A receiver that notes what it is told."""

    def __init__(self):
        self.messages, self.told, self.gone_ranks = [], [], set()

    def received(self, delivery):
        self.messages.append((delivery.sender, delivery.head, bytes(delivery.tree)))
        delivery.release()

    def linked(self, peer, incarnation):
        pass

    def gone(self, peer, incarnation=None):
        self.gone_ranks.add(peer)

    def told_to_finish(self, finish):
        self.told.append(finish)


class Three:
    """Three ranks, whose wires all end at rank 0."""

    def __init__(self, **options):
        self.signals = [None, None, None]
        ends = {1: _pair(1), 2: _pair(2)}
        wires = [{rank: end[0] for rank, end in ends.items()}]
        wires += [{0: ends[rank][1]} for rank in (1, 2)]
        self.wires = wires
        self.ranks = [
            JoinTransport(
                place_of(rank, 3),
                wires[rank],
                "start again",
                lambda r=rank: self.signals[r],
                **options,
            )
            for rank in range(3)
        ]
        self.receivers = [Noted() for _ in range(3)]
        for transport, receiver in zip(self.ranks, self.receivers, strict=True):
            transport.start(receiver)

    def close(self):
        for transport in self.ranks:
            transport._over = True
        for wires in self.wires:
            for wire in wires.values():
                wire.close()
        for thread in threading.enumerate():
            if thread.name.startswith("muster-join"):
                thread.join(5)


def _pair(rank):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        there = socket.create_connection(listener.getsockname())
        here, _ = listener.accept()
    return Wire(here, 0, rank), Wire(there, rank, 0)


@pytest.fixture
def three():
    with contextlib.ExitStack() as stack:

        def make(**options):
            return stack.enter_context(contextlib.closing(Three(**options)))

        yield make


def eventually(condition):
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def counter(memory, rank):
    return struct.unpack_from("<q", memory, rank * ROW)[0]


def test_what_a_rank_publishes_reaches_all_others(three):
    here = three()
    memories = [rank.shared_memory(3 * ROW + 8) for rank in here.ranks]
    at = 3 * ROW
    memories[1][at : at + 8] = b"gradient"
    here.ranks[1].publish([(at, at + 8)], 1)
    for memory in memories:
        eventually(lambda memory=memory: counter(memory, 1) == 1)
        assert bytes(memory[at:]) == b"gradient"


def test_a_message_between_two_others_goes_through_rank_0(three):
    here = three()
    parcel = here.ranks[1].parcel(b"tree", [memoryview(b"buffer")])
    assert here.ranks[1].send(2, b"head", parcel)
    eventually(lambda: here.receivers[2].messages == [(1, b"head", b"tree")])
    assert here.receivers[0].messages == []


def test_all_ranks_run_once_the_last_has_come(three):
    here = three()
    answers = {}

    def meet(rank):
        answers[rank] = here.ranks[rank].meet(0, (), frozenset({f"node.{rank}"}))

    threads = [threading.Thread(target=meet, args=(rank,)) for rank in (0, 1)]
    for thread in threads:
        thread.start()
    time.sleep(0.2)
    assert answers == {}
    meet(2)
    for thread in threads:
        thread.join(10)
    assert answers == {0: None, 1: None, 2: None}


def test_ranks_with_arrays_of_another_size_do_not_run(three):
    here = three()
    for rank, size in enumerate((1024, 1024, 2048)):
        here.ranks[rank].shared_memory(size)
    failed = []

    def meet(rank):
        with pytest.raises(ClusterError, match="different sizes"):
            here.ranks[rank].meet(0, (), frozenset())
        failed.append(rank)

    threads = [threading.Thread(target=meet, args=(rank,)) for rank in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert sorted(failed) == [0, 1, 2]


def test_a_rank_that_is_lost_is_named_on_all_others(three):
    here = three()
    here.wires[2][0]._sock.shutdown(socket.SHUT_RDWR)
    for rank in (0, 1):
        eventually(lambda rank=rank: here.ranks[rank].failure is not None)
        assert "rank 2 is lost" in here.ranks[rank].failure.args[0]
        assert here.receivers[rank].gone_ranks == set(range(3)) - {rank}


def test_a_signal_to_one_rank_is_told_to_all(three):
    here = three()
    here.signals[2] = 15
    for receiver in here.receivers:
        eventually(lambda receiver=receiver: [each.signal for each in receiver.told] == [15])


def test_a_rank_that_hangs_ends_the_run_on_the_others(three):
    here = three(hang_after=2.0)
    here.ranks[1].looping(True)  # and it never advances
    eventually(lambda: all(rank.failure is not None for rank in here.ranks))
    assert all("rank 1 hangs" in rank.failure.args[0] for rank in here.ranks)


def test_ranks_that_end_with_other_weights_are_an_error(three):
    here = three()
    threads = [threading.Thread(target=_done, args=(here.ranks[rank],)) for rank in (1, 2)]
    for thread in threads:
        thread.start()
    with pytest.raises(ClusterError, match="rank 1 ended with other weights"):
        here.ranks[0].done("mine")
    here.ranks[0].end()
    for thread in threads:
        thread.join(10)


def _done(rank):
    rank.done("theirs")


def test_a_rank_that_waits_saves_or_is_outside_its_loop_does_not_hang():
    now = [0.0]
    mine, theirs = Pulse(10, lambda: now[0]), Pulse(10, lambda: now[0])

    def pass_time(seconds):
        for _ in range(seconds):
            now[0] += 1
            count = theirs.beat()
            if count is not None:
                mine.heard(1, count)

    pass_time(20)
    assert mine.hung() is None
    theirs.looping(True)
    with theirs.excused():
        pass_time(20)
    assert mine.hung() is None
    pass_time(9)
    assert mine.hung() is None
    theirs.advance()
    pass_time(9)
    assert mine.hung() is None
    pass_time(5)
    assert mine.hung() == 1
