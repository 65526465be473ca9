"""`PeerProxy`: represents, on this machine, a node on another machine.

    node i ──socket──> node actor of i as j ──Ray──> node actor of j as i ──socket──> node j

A node connects to the sockets of all others. Behind the socket of a node on another machine is a
proxy: it forwards messages to that node's actor, in order, none twice, and none lost as long as
both nodes and both actors are alive. Messages that arrive during a call are sent with the next one,
so there is one call at a time and no queue of calls.
"""

import logging
import secrets
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import ray

from muster.engines.base import Delivery
from muster.engines.local.blocks import BlockPool, MemoryBlock
from muster.engines.local.handshake import Secrets
from muster.engines.local.link import make_parcel
from muster.engines.local.link_hub import LinkHub
from muster.engines.ray.calls import call_until_answered
from muster.errors import ClusterError
from muster.framework.node import Finish, Place

RemoteMessage = tuple[bytes, bytes, list[Any]]
"""Head, tree and buffers of a message."""

_MOST_MESSAGES = 256
_MOST_BYTES = 16 << 20
"""Limits of one call."""
_FLUSH_SECONDS = 5.0

_log = logging.getLogger("muster")


class PeerProxy:
    """The proxy of node `away`, for the node of this node actor.

    Args:
        away: Current place of the node on another machine.
        home: Place of this node actor's node.
        known: The run's secrets.
        directory: Directory of the sockets of this node actor's node.
        node_actor: The actor of the other node.
        me: The handle of this node actor.
        fail: Called with an error that has to end the run.
        session: Session of the proxy on the other machine that requests a link; None if this one
            requests it.
    """

    def __init__(
        self,
        away: Place,
        home: Place,
        known: Secrets,
        directory: Path,
        node_actor: Any,
        me: Any,
        fail: Callable[[ClusterError], None],
        session: int | None = None,
    ) -> None:
        self.away = away
        self.session = secrets.randbits(62) if session is None else session
        self._sent = self._seen = 0
        self._home = home
        self._node_actor = node_actor
        self._me = me
        self._fail = fail
        self._pool = BlockPool(self._forget)
        self._changed = threading.Condition()
        self._todo: deque[Delivery | _Linked | _Lost] = deque()
        self._closed = False
        self._answers = False
        self._is_linked = False
        self._hub = LinkHub(away, known, directory, self._pool, self, _log.warning, lambda: None)
        self._hub.start()
        threading.Thread(
            target=self._send_all, name=f"muster-to-{away.node_id}", daemon=True
        ).start()

    # ---- for the node actor

    def connect(self, incarnation: int) -> None:
        """Link the other node, which requested it, to this actor's node, which is already up."""
        self._answers = True
        if self._hub.connect(self._home.node_id, incarnation):
            with self._changed:  # the next deliveries go over this link
                self._changed.wait_for(lambda: self._is_linked or self._closed)

    def deliver(self, number: int, messages: Sequence[RemoteMessage]) -> None:
        """Deliver messages of the other node to this actor's node, once."""
        link = self._hub.link_to(self._home.node_id)
        if link is None or number <= self._seen:
            return
        self._seen = number
        for head, tree, buffers in messages:
            if not tree and not buffers:
                link.send(head, None)
                continue
            parcel = make_parcel(self._pool, tree, [memoryview(each).cast("B") for each in buffers])
            link.send(head, parcel)
            parcel.drop()

    def close(self) -> None:
        """Close the link of this actor's node to the other one."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._changed.notify_all()
        self._hub.stop(_FLUSH_SECONDS)
        self._pool.close()

    # ---- from the link hub

    def received(self, delivery: Delivery) -> None:
        """Queue a message for the other node."""
        self._add(delivery)

    def linked(self, peer: int, incarnation: int) -> None:
        """This actor's node is linked to the proxy."""
        with self._changed:
            self._is_linked = True
            self._changed.notify_all()
        if not self._answers:
            self._add(_Linked(incarnation))

    def lost(self, peer: int) -> None:
        """The link to this actor's node is down."""
        self._add(_Lost())

    def gone(self, peer: int, incarnation: int | None = None) -> None:
        """Not called by a link hub."""

    def joined(self, peer: int) -> None:
        """Not called by a link hub."""

    def replaced(self, total: int) -> None:
        """Not called by a link hub."""

    def told_to_finish(self, finish: Finish) -> None:
        """Not called by a link hub."""

    def heard_driver(self, message: object) -> None:
        """Not called by a link hub."""

    # ---- to the other node actor

    def _add(self, what: "Delivery | _Linked | _Lost") -> None:
        with self._changed:
            self._todo.append(what)
            self._changed.notify_all()

    def _send_all(self) -> None:
        """Send the queued messages, one call after the other."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._todo or self._closed)
                if self._closed:
                    return
                batch = self._take()
            if not self._send_batch(batch):
                self.close()
                return

    def _send_batch(self, batch: "list[Delivery] | _Linked | _Lost") -> bool:
        """Repeat a call until it is answered; False if that is not possible any more."""
        try:  # a lost call may have been executed: the other node actor checks its number
            call_until_answered(self._calling(batch), is_wanted=lambda: not self._closed)
        except ClusterError as error:
            self._fail(error)
            return False
        except ray.exceptions.RayError as error:
            _log.warning("node %d cannot be reached: %s", self.away.node_id, error)
            return False
        for each in batch if isinstance(batch, list) else ():
            each.release()
        return True

    def _take(self) -> "list[Delivery] | _Linked | _Lost":
        first = self._todo.popleft()
        if not isinstance(first, Delivery):
            return first
        batch, size = [first], 0
        while self._todo and isinstance(following := self._todo[0], Delivery):
            size += sum(part.nbytes for part in batch[-1].buffers)
            if len(batch) == _MOST_MESSAGES or size >= _MOST_BYTES:
                break
            batch.append(following)
            self._todo.popleft()
        return batch

    def _calling(self, what: "list[Delivery] | _Linked | _Lost") -> Callable[[], Any]:
        """Return a function that makes the call for a batch."""
        node_actor, home = self._node_actor, self._home
        if isinstance(what, _Linked):
            here = replace(home, incarnation=what.incarnation)
            return partial(
                node_actor.link.remote, self._me, here, self.away.incarnation, self.session
            )
        if isinstance(what, _Lost):
            return partial(node_actor.unlink.remote, home.node_id)
        self._sent += 1
        messages = [
            (each.head, each.tree, [np.frombuffer(part, np.uint8) for part in each.buffers])
            for each in what
        ]
        return partial(node_actor.deliver.remote, home.node_id, self._sent, messages)

    def _forget(self, block: MemoryBlock) -> None:
        link = self._hub.link_to(self._home.node_id)
        if link is not None and link in block.known_to:
            link.send_forget(block.number)


@dataclass(frozen=True, slots=True)
class _Linked:
    """Link this incarnation of this actor's node to the other node."""

    incarnation: int


@dataclass(frozen=True, slots=True)
class _Lost:
    """This actor's node is not linked any more."""
