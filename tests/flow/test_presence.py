"""Nodes that are not there: nobody waits for them, and they get the newest when they come."""

import time

from muster.flow.board import Publisher
from muster.flow.dispatcher import Dispatcher
from muster.flow.stream import Outlet
from muster.flow.wire import pack
from muster.framework.node import Place


class Wire:
    """A transport that keeps what is sent."""

    place = Place(0, 3, None, (None,) * 3, frozenset(), (1, 2), (1, 2), elastic=frozenset({2}))

    def __init__(self):
        self.sent = []

    def parcel(self, tree, buffers):
        return self

    nbytes = 0

    def drop(self):
        pass

    def send(self, to, head, parcel=None):
        self.sent.append(to)
        return True

    def wait_for(self, changed, until, timeout):
        with changed:
            return changed.wait_for(until, timeout)


def test_who_is_away_is_not_waited_for_and_gets_the_newest_when_it_comes():
    wire = Wire()
    dispatcher = Dispatcher(wire)
    dispatcher.gone(2, incarnation=-1)
    board = Publisher(dispatcher, "weights", (1, 2))
    events = Outlet(dispatcher, "events", 2, window=4)
    dispatcher.linked(1, 0)
    board.publish({"w"}, pack({"w": 1}))
    started = time.monotonic()
    board.wait_until_sent(started + 5)
    assert wire.sent == [1] and time.monotonic() - started < 1
    assert not events.put(pack("nobody hears this"))
    assert dispatcher.is_away(2)
    dispatcher.linked(2, 0)
    assert wire.sent == [1, 2]
    assert events.put(pack("this is heard")) and wire.sent == [1, 2, 2]
    assert dispatcher.is_away(2), "it is linked, and not yet at work"
    dispatcher.joined(2)
    assert not dispatcher.is_away(2)


def test_a_node_whose_others_are_all_away_is_not_alone_until_one_has_ended():
    """It would run empty loops to `max_step`, and so end the run of those that come back."""
    dispatcher = Dispatcher(Wire())
    assert not dispatcher.is_alone
    dispatcher.gone(1, incarnation=0)
    dispatcher.gone(2, incarnation=-1)
    assert not dispatcher.is_alone
    dispatcher.linked(1, 1)
    dispatcher.gone(1)
    assert dispatcher.is_alone, "node 2 never came, and the work is done"


def test_a_node_is_alone_when_those_that_were_away_are_given_up():
    dispatcher = Dispatcher(Wire())
    for node in (1, 2):
        dispatcher.gone(node, incarnation=-1)
        dispatcher.gone(node)
        assert dispatcher.is_away(node), "it never joined"
    assert dispatcher.is_alone


def test_word_of_an_earlier_process_that_left_comes_too_late_for_the_present_one():
    dispatcher = Dispatcher(Wire())
    dispatcher.linked(2, 3)
    dispatcher.gone(2, incarnation=2)
    assert not dispatcher.is_away(2) and not dispatcher.is_gone(2)
    dispatcher.gone(2, incarnation=3)
    assert dispatcher.is_away(2) and dispatcher.is_gone(2)
