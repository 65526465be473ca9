"""Unrolls and weights between actors and a learner, on different nodes.

    UnrollOutbox   actor:   wait for a permit -> the newest weights ...... send an unroll
    UnrollInbox    learner: receive -> `UnrollQueue` -> a batch ...... weights and permits to all

A permit names the process that may use it and the oldest weights that it may be used with. Permits
travel separately from weights, so the replacement of an actor gets one without a new version.
"""

from collections.abc import Callable, Sequence
from typing import Any

from muster.data.unrolls import SentUnroll
from muster.flow import Channel, ParameterServer, Weights
from muster.workers.unroll_queue import UnrollQueue, WaitingUnroll

_HOME = "role.learner"
_LOOK_AGAIN_S = 0.2
"""Interval in seconds at which a waiting learner checks for replaced and new actors."""


class UnrollInbox:
    """The learner's side.

    Args:
        weights: The initial weights.
        actors: The nodes that send unrolls; some may join later, or leave.
        batch: Unrolls in one batch.
        in_flight: Maps the number of present actors to the unrolls of each that may be begun and
            not learnt from.
        capacity: Unrolls that each actor may have sent and not seen received.
        max_lag: See `UnrollQueue`.
        session: Incarnation of the learner.
    """

    def __init__(
        self,
        weights: Any,
        actors: Sequence[int],
        batch: int,
        in_flight: Callable[[int], int],
        capacity: int,
        max_lag: int | None,
        session: int,
    ) -> None:
        self._server = ParameterServer(home=_HOME)
        self._permits = ParameterServer(name="permits", home=_HOME)
        self._channel = Channel("unrolls", _HOME, capacity)
        self._actors = actors
        self._in_flight = in_flight
        version = self._server.push(weights)
        here = self._here()
        most = in_flight(max(1, len(here)))
        self.queue = UnrollQueue(here, batch, most, max_lag, version, session)
        """The unrolls that have arrived."""
        self._told: dict[int, tuple[int, int, int]] = {}
        self._tell()

    def receive(self) -> Sequence[WaitingUnroll] | None:
        """Wait for a batch; None when the run finishes first."""
        while True:
            # Read first: everything that a process has sent arrives before its successor is linked.
            processes = {actor: self._channel.incarnation_of(actor) for actor in self._here()}
            while len(self._channel):
                self._take_in(0)
            for actor in self._actors:
                if actor not in processes:
                    self.queue.left(actor)
            self.queue.allow(self._in_flight(max(1, len(processes))))
            for actor, incarnation in processes.items():
                self.queue.joined(actor, incarnation)
            self._tell()
            if self.queue.ready():
                return self.queue.take()
            try:
                if not self._take_in(_LOOK_AGAIN_S):
                    return None
            except TimeoutError:
                continue

    def learnt(self, weights: Any) -> None:
        """Send the weights that the batch produced to the actors, and permit further unrolls."""
        self.queue.learnt(self._server.push(weights))
        self._tell()

    def _here(self) -> list[int]:
        return [actor for actor in self._actors if not self._channel.is_away(actor)]

    def _take_in(self, timeout: float) -> bool:
        parcel = self._channel.get_with_source(timeout)
        if parcel is None:
            return False
        unroll: SentUnroll = parcel.value
        self.queue.arrived(
            unroll,
            parcel.sender,
            parcel.incarnation,
            unroll.session,
            unroll.number,
            unroll.version,
        )
        return True

    def _tell(self) -> None:
        permits = self.queue.permits()
        if permits != self._told:
            self._permits.push(permits, session=self.queue.session)
            self._told = permits


class UnrollOutbox:
    """An actor's side.

    Args:
        node: Node of the actor.
        incarnation: Incarnation of the actor.
        capacity: The same number as on the learner.
    """

    def __init__(self, node: int, incarnation: int, capacity: int) -> None:
        self._server = ParameterServer(home=_HOME)
        self._permits = ParameterServer(name="permits", home=_HOME)
        self._channel = Channel("unrolls", _HOME, capacity)
        self._node, self._incarnation = node, incarnation
        self._session = -1
        self._begun = 0

    def weights(self) -> Weights | None:
        """Wait until the next unroll may begin, and return its weights; None if the run finishes.

        The weights are the newest that have arrived.
        """
        seen = 0
        while (note := self._permits.pull(newer_than=seen)) is not None:
            seen = note.version
            if note.info["session"] != self._session:  # a new learner counts from 0
                self._session, self._begun = note.info["session"], 0
            # The learner may not have noticed yet that this node has joined.
            incarnation, permitted, least = note.values.get(self._node, (-1, 0, 0))
            if incarnation == self._incarnation and self._begun < permitted:
                self._begun += 1
                return self._server.pull(newer_than=least - 1)
        return None

    def send(self, columns: Any, collected: Any, weights: Weights) -> bool:
        """Send the unroll that began with these weights; return False if the run finished first."""
        cut, episodes, metrics = collected
        version, session, begun = weights.version, self._session, self._begun
        return self._channel.put(
            SentUnroll(columns, cut, episodes, version, session, begun, metrics)
        )
