"""`PeerProxy`: two nodes linked through their actors, with Ray's calls made in this process."""

import queue
import threading
import time

import pytest

from muster.engines.local.blocks import BlockPool
from muster.engines.local.handshake import Secrets
from muster.engines.local.link import make_parcel
from muster.engines.local.link_hub import LinkHub
from muster.framework.node import Place

pytest.importorskip("ray")
pytestmark = pytest.mark.timeout(600)

SIZE = 2


def place(node, incarnation=0):
    others = tuple(other for other in range(SIZE) if other != node)
    return Place(node, SIZE, None, (None,) * SIZE, frozenset(), others, others, incarnation)


class Node:
    """A node's post, and what it heard."""

    def __init__(self, node, known, directory, incarnation=0):
        self.heard = queue.SimpleQueue()
        self.pool = BlockPool(lambda block: None)
        self.link_hub = LinkHub(
            place(node, incarnation), known, directory, self.pool, self, print, lambda: None
        )
        self.link_hub.start()

    def received(self, delivery):
        self.heard.put(("got", delivery.head, delivery.tree, [bytes(b) for b in delivery.buffers]))
        delivery.release()

    def linked(self, peer, incarnation):
        self.heard.put(("linked", peer, incarnation))

    def lost(self, peer):
        self.heard.put(("lost", peer))

    def send(self, to, head, tree, *buffers):
        parcel = make_parcel(self.pool, tree, [memoryview(each) for each in buffers])
        self.link_hub.link_to(to).send(head, parcel)
        parcel.drop()

    def close(self):
        self.link_hub.stop(1.0)
        self.pool.close()


class Method:
    """Is called like a method of a Ray actor, and done at once."""

    def __init__(self, node_actor, name):
        self.node_actor, self.name = node_actor, name

    def remote(self, *args):
        self.node_actor.calls.append(self.name)
        if self.name == "deliver":  # Ray makes a copy when it is called
            args = (*args[:2], [(h, t, [b.copy() for b in bs]) for h, t, bs in args[2]])
        return lambda: getattr(self.node_actor, f"do_{self.name}")(*args)


class FakeKeeper:
    """The part of a node actor that links; it counts its calls."""

    def __init__(self, node, known, directory):
        self.place, self.known, self.directory = place(node), known, directory
        self.proxies, self.calls = {}, []
        self.link = Method(self, "link")
        self.deliver = Method(self, "deliver")
        self.unlink = Method(self, "unlink")

    def stand_in_for(self, away, node_actor, session=None):
        from muster.engines.ray.peer_proxy import PeerProxy

        older = self.proxies.pop(away.node_id, None)
        if older is not None:
            older.close()
        made = PeerProxy(
            away, self.place, self.known, self.directory, node_actor, self, print, session
        )
        self.proxies[away.node_id] = made
        return made

    def do_link(self, node_actor, away, incarnation, session):
        assert incarnation == self.place.incarnation
        self.stand_in_for(away, node_actor, session).connect(incarnation)

    def do_deliver(self, sender, number, messages):
        self.proxies[sender].deliver(number, messages)

    def do_unlink(self, node):
        self.proxies.pop(node).close()


@pytest.fixture
def pair(tmp_path_factory, monkeypatch):
    """Two nodes on two machines, of which the second has just linked itself to the first."""
    from muster.engines.ray import peer_proxy

    monkeypatch.setattr(peer_proxy.ray, "get", lambda call, timeout: call())
    known = Secrets.fresh("1")
    places = [tmp_path_factory.mktemp("m") for _ in range(SIZE)]
    node_actors = [FakeKeeper(node, known, places[node]) for node in range(SIZE)]
    nodes = [Node(node, known, places[node]) for node in range(SIZE)]
    node_actors[1].stand_in_for(place(0), node_actors[0])
    nodes[1].link_hub.connect(0, 0)
    for node, other in ((1, 0), (0, 1)):
        assert nodes[node].heard.get(timeout=10) == ("linked", other, 0)
    yield nodes, node_actors
    for node_actor in node_actors:
        for each in list(node_actor.proxies.values()):
            each.close()
    for node in nodes:
        node.close()


def test_a_link_takes_one_call_and_no_more(pair):
    nodes, node_actors = pair
    nodes[1].send(0, b"h", b"tree")
    assert nodes[0].heard.get(timeout=10)[0] == "got"
    nodes[0].send(1, b"h", b"tree")
    assert nodes[1].heard.get(timeout=10)[0] == "got"
    assert node_actors[0].calls == ["link", "deliver"] and node_actors[1].calls == ["deliver"]


def test_messages_of_any_size_arrive_whole_and_in_order_both_ways(pair):
    nodes, _ = pair
    sizes = [0, 1, 1000, 100_000, 3_000_000] * 8
    messages = [(b"%d" % n, b"t" * (n % 7), bytes([n]) * size) for n, size in enumerate(sizes)]
    threads = [
        threading.Thread(target=lambda a=a: [nodes[a].send(1 - a, *each) for each in messages])
        for a in (0, 1)
    ]
    for thread in threads:
        thread.start()
    for node in nodes:
        for head, tree, body in messages:
            assert node.heard.get(timeout=20) == ("got", head, tree, [body])
    for thread in threads:
        thread.join()


def test_a_node_that_goes_is_seen_to_go_on_the_other_machine(pair):
    nodes, node_actors = pair
    nodes[1].send(0, b"last", b"words")
    nodes[1].close()
    assert nodes[0].heard.get(timeout=10)[:2] == ("got", b"last")
    assert nodes[0].heard.get(timeout=10) == ("lost", 1)
    deadline = time.monotonic() + 5
    while node_actors[0].proxies and time.monotonic() < deadline:
        time.sleep(0.01)
    assert node_actors[0].proxies == {}
    nodes[1] = Node(1, node_actors[1].known, node_actors[1].directory)  # for the end of the test


def test_a_new_incarnation_takes_the_place_of_an_old_one(pair):
    nodes, node_actors = pair
    nodes[1].close()
    assert nodes[0].heard.get(timeout=10) == ("lost", 1)
    node_actors[1].place = place(1, 1)
    nodes[1] = Node(1, node_actors[1].known, node_actors[1].directory, 1)
    node_actors[1].stand_in_for(place(0), node_actors[0])
    nodes[1].link_hub.connect(0, 0)
    assert nodes[0].heard.get(timeout=10) == ("linked", 1, 1)
    nodes[0].send(1, b"h", b"updates")
    assert nodes[1].heard.get(timeout=10) == ("linked", 0, 0)
    assert nodes[1].heard.get(timeout=10) == ("got", b"h", b"updates", [])


def test_a_call_whose_answer_got_lost_is_made_again_and_heard_once(pair, monkeypatch):
    from muster.engines.ray import peer_proxy

    nodes, node_actors = pair
    lost = iter([True, True, False])

    def get(call, timeout):
        call()
        if next(lost, False):
            raise peer_proxy.ray.exceptions.ActorUnavailableError("out of reach", None)

    monkeypatch.setattr(peer_proxy.ray, "get", get)
    nodes[1].send(0, b"first", b"tree")
    assert nodes[0].heard.get(timeout=10)[1] == b"first"
    nodes[1].send(0, b"second", b"tree")
    assert nodes[0].heard.get(timeout=10)[1] == b"second"
    assert node_actors[0].calls.count("deliver") == 4
