"""Shares of a batch computed by several learners: a leader, and replicas that follow it.

    leader                                  replica
    begin(work) ──work──────────────────>   next() -> work, and the same update begins there
    shares(...)   own shares                shares(...)   own shares
                <──gradients of shares───
                  sum in order ──sum────>   continues with the sum

All of them hold the complete agent and take the same steps. A replica says hello when it starts,
and receives the leader's state before its first work. A replacement of a replica says hello again;
the leader then computes the shares of the lost replica itself, with the same result.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from muster.devices import as_array, fill
from muster.flow import Channel
from muster.nets.shares import add_up

T = TypeVar("T", bound=tuple[Any, ...])

_HOME = "role.learner"
_LEADER = 0
_HELLO, _SHARES = "hello", "shares"
_STATE, _WORK, _SUM = "state", "work", "sum"
_LOOK_AGAIN_S = 0.2
"""Interval in seconds at which a waiting replica checks whether the leader was replaced."""


class NewLeaderError(Exception):
    """The leader was replaced, so the current computation is useless."""


class RunOverError(Exception):
    """The run finished while an update was being computed."""


class LeadingShares:
    """The leader's side; see `muster.nets.shares.Shares`.

    Args:
        replicas: The nodes that follow.
        slots: Number of shares of a batch.
        state: Returns the state that a replica needs to take the same steps.
    """

    threads = 1
    """Threads of this process."""

    def __init__(self, replicas: Sequence[int], slots: int, state: Callable[[], Any]) -> None:
        self.members = slots
        """Number of shares of a batch."""
        self._of_replicas = self._of_all = 0
        self._nodes = list(replicas)
        self._state = state
        self._up = Channel("replicas.up", _HOME, capacity=4)
        self._down = {node: Channel(f"replicas.{node}", node, capacity=8) for node in replicas}
        self._new: dict[int, int] = {}
        """Incarnations that have said hello, but have no state yet."""
        self._following: dict[int, int] = {}
        """Incarnations that take part in the current work."""
        self._number = 0
        self._phase = 0

    @property
    def by_replicas(self) -> float:
        """The fraction of all shares so far that replicas have computed."""
        return self._of_replicas / max(1, self._of_all)

    def begin(self, work: Any) -> None:
        """Send the data of the next update to the replicas, so that they begin the same update."""
        while len(self._up):
            self._receive(0)
        self._number += 1
        self._phase = 0
        if self._new:
            state = self._state()
            for node, incarnation in self._new.items():
                self._down[node].put((_STATE, incarnation, state))
            self._following |= self._new
            self._new.clear()
        for node in self._following:
            self._down[node].put((_WORK, self._number, work))

    def __call__(
        self, call: Callable[[int], T], count: int, gradients: Sequence[Any]
    ) -> list[tuple[Any, ...]]:
        """Compute own shares, gather those of the replicas, and send them the sum."""
        self._phase += 1
        learners = [_LEADER, *self._nodes]
        owners = {share: owner_of(share, count, learners) for share in range(count)}
        found: dict[int, tuple[Any, ...]] = {
            share: tuple(call(share))
            for share, node in owners.items()
            if node not in self._following
        }
        missing = {share for share in range(count) if share not in found}
        while missing:
            theirs = self._receive(None)
            if theirs is None:  # the run is over, except for this update
                self._following.clear()
                theirs = {}
            for share, (gradient, result) in theirs.items():
                if share in missing:
                    fill(gradients[share], gradient)
                    found[share] = tuple(result)
                    missing.remove(share)
                    self._of_replicas += 1
            lost = {share for share in missing if owners[share] not in self._following}
            found |= {share: tuple(call(share)) for share in sorted(lost)}
            missing -= lost
        self._of_all += count
        add_up(gradients[:count])
        results = [found[share] for share in range(count)]
        total = as_array(gradients[0])
        for node in self._following:
            self._down[node].put((_SUM, self._number, self._phase, total, results))
        return results

    def _receive(self, timeout: float | None) -> dict[int, Any] | None:
        """Return the shares of one message, {} if it has none; None when the run is over."""
        parcel = self._up.get_with_source(timeout)
        if parcel is None:
            return None
        kind, *content = parcel.value
        if kind == _HELLO:
            self._new[parcel.sender] = parcel.incarnation
            self._following.pop(parcel.sender, None)
            return {}
        number, phase, shares = content
        is_awaited = (number, phase) == (self._number, self._phase)
        if is_awaited and self._following.get(parcel.sender) == parcel.incarnation:
            return dict(shares)
        return {}  # from a replica that has since been replaced


class FollowingShares:
    """A replica's side; see `muster.nets.shares.Shares`.

    Args:
        node: The node of this replica.
        replicas: The nodes of all replicas.
        slots: Number of shares of a batch.
        incarnation: Incarnation of this replica.
    """

    threads = 1
    """Threads of this process."""

    def __init__(self, node: int, replicas: Sequence[int], slots: int, incarnation: int) -> None:
        self.members = slots
        """Number of shares of a batch."""
        self._node = node
        self._learners = [_LEADER, *replicas]
        self._incarnation = incarnation
        self._up = Channel("replicas.up", _HOME, capacity=4)
        self._down = Channel(f"replicas.{node}", node, capacity=8)
        self._greeted = -1
        """The incarnation of the leader that this replica has said hello to."""
        self._session = -1
        """The incarnation of the leader that has sent its state."""
        self._number = 0
        self._phase = 0
        self._state_to_load: Any = None

    def next(self, load: Callable[[Any], None]) -> Any:
        """Wait for the next work, and return it; None when the run is over.

        Args:
            load: Loads the leader's state; called before the first work, and again after the leader
                was replaced.
        """
        while True:
            if self._state_to_load is not None:
                state, self._state_to_load = self._state_to_load, None
                load(state)
            message = self._receive()
            if message is None:
                return None
            kind, *content = message
            if kind == _WORK:
                self._number, work = content
                self._phase = 0
                return work

    def __call__(
        self, call: Callable[[int], T], count: int, gradients: Sequence[Any]
    ) -> list[tuple[Any, ...]]:
        """Compute own shares, and wait for the sum.

        Raises:
            NewLeaderError: The leader was replaced.
            RunOverError: The run has finished.
        """
        self._phase += 1
        mine = [k for k in range(count) if owner_of(k, count, self._learners) == self._node]
        results = {share: tuple(call(share)) for share in mine}
        if mine:
            shares = {k: (as_array(gradients[k]), results[k]) for k in mine}
            if not self._up.put((_SHARES, self._number, self._phase, shares)):
                raise RunOverError
        while (message := self._receive()) is not None:
            kind, *content = message
            if kind == _STATE:
                raise NewLeaderError
            if kind == _SUM and content[:2] == [self._number, self._phase]:
                _, _, total, all_results = content
                fill(gradients[0], total)
                return [tuple(each) for each in all_results]
        raise RunOverError

    def _receive(self) -> tuple[Any, ...] | None:
        """Return the next message for this process; None when the run is over."""
        while True:
            leader = self._down.incarnation_of(_LEADER)
            if leader != self._greeted:
                self._up.put((_HELLO,))
                self._greeted = leader
            try:
                parcel = self._down.get_with_source(_LOOK_AGAIN_S)
            except TimeoutError:
                continue
            if parcel is None:
                return None
            message: tuple[Any, ...] = parcel.value
            if message[0] == _STATE:
                if message[1] == self._incarnation:
                    self._session = parcel.incarnation
                    self._state_to_load = message[2]
                    return message
            elif parcel.incarnation == self._session:
                return message


def owner_of(share: int, count: int, learners: Sequence[int]) -> int:
    """Return the learner that computes a share; adjacent shares go to the same learner."""
    return learners[share * len(learners) // count] if count >= len(learners) else learners[share]
