"""`UnrollQueue`: the unrolls that a learner uses next, and how many each actor may begin.

    joined(actor, incarnation)   an actor has a new process: forget what the last had begun
    left(actor)                  an actor has no process: forget what it had begun
    allow(in_flight)             how many unrolls each actor may have begun, given their number
    arrived(...)                 an unroll is here; each exactly once, by its number
    ready() -> take()            the oldest ones, unless that would make another one too old
    learnt(version)              their actors may begin as many more, with this version or later
    permits()                    the messages to the actors

The queue only decides and counts: it never waits, and reads no unroll. Every actor has at most
`in_flight` unrolls that are begun and not learnt from. A permit includes the oldest weights that
may be used for it. So the learner has a lower limit for the version of every unroll that is in
transit, and makes no version that would leave one of them older than `max_lag` when its turn comes,
the oldest first. While actors join and leave, an actor may have fewer: all actors together never
have more than can be learnt from within `max_lag`.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from muster.errors import TaskError


@dataclass(frozen=True, slots=True)
class WaitingUnroll:
    """An unroll that has arrived."""

    content: Any
    version: int
    """Version of its first weights; for an earlier session, the version when it arrived."""
    actor: int
    permitted: bool
    """Whether it counts among the unrolls that its actor may have in flight."""
    comparable: bool
    """Whether its weights are of this session, so that its lag is defined."""


@dataclass(slots=True)
class _ActorState:
    """The learner's knowledge of an actor."""

    least: int
    """Oldest weights for the last unroll that it may begin."""
    incarnation: int = 0
    permitted: int = 0
    """Total number of unrolls that its current incarnation may begin."""
    on_the_way: list[int] = field(default_factory=list)
    """Lower limits of the versions of permitted unrolls that have not arrived, in order."""


@dataclass(slots=True)
class UnrollQueue:
    """Unrolls between their actors and the learner.

    Args:
        actors: The nodes of the actors.
        batch: Unrolls per update.
        in_flight: Unrolls of each actor that may be begun and not learnt from.
        max_lag: Maximum number of versions between the weights of an unroll and those that learn
            from it; None for any number.
        version: The current version of the learner's weights.
        session: Incarnation of the learner.
    """

    actors: Iterable[int]
    batch: int
    in_flight: int
    max_lag: int | None
    version: int
    session: int = 0
    _states: dict[int, _ActorState] = field(init=False)
    _waiting: list[WaitingUnroll] = field(init=False, default_factory=list)
    _taken: list[WaitingUnroll] = field(init=False, default_factory=list)
    _numbers: dict[tuple[int, int, int], int] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._states = {actor: _ActorState(self.version) for actor in self.actors}
        self._permit_more()

    def __len__(self) -> int:
        """Return the number of unrolls that have arrived and were not taken."""
        return len(self._waiting)

    def joined(self, actor: int, incarnation: int) -> None:
        """Record the current incarnation of an actor.

        Unrolls of the previous incarnation that have arrived are used; its others are lost.
        """
        state = self._states.get(actor)
        if state is None or incarnation > state.incarnation:
            self._states[actor] = _ActorState(self.version, incarnation)
            self._permit_more()

    def left(self, actor: int) -> None:
        """Record that an actor has left: unrolls that arrived are used, its others are lost."""
        if self._states.pop(actor, None) is not None:
            self._permit_more()

    def allow(self, in_flight: int) -> None:
        """Set how many unrolls each actor may have begun and not seen learnt from.

        Existing permits stay valid: an actor with more begins none until it has fewer.
        """
        self.in_flight = in_flight
        self._permit_more()

    def arrived(
        self, content: Any, actor: int, incarnation: int, session: int, number: int, version: int
    ) -> None:
        """Add an unroll that has arrived.

        Args:
            content: Returned by `take`.
            actor: The node that sent it.
            incarnation: Incarnation of that node.
            session: Incarnation of the learner whose weights it used.
            number: Its number among the unrolls that this process began in that session, from 1.
            version: Version of its weights.

        Raises:
            TaskError: An earlier unroll is missing, or this one arrived before.
        """
        self._count(actor, incarnation, session, number)
        self.joined(actor, incarnation)
        state = self._states[actor]
        comparable = session == self.session
        permitted = comparable and incarnation == state.incarnation
        if permitted:
            del state.on_the_way[:1]
            # Versions only increase, so unrolls that the actor began later are not older.
            state.on_the_way = [max(version, each) for each in state.on_the_way]
        version = version if comparable else self.version
        self._waiting.append(WaitingUnroll(content, version, actor, permitted, comparable))

    def ready(self) -> bool:
        """Whether the oldest unrolls that are here may be used for an update now."""
        if len(self._waiting) < self.batch:
            return False
        on_the_way = [each for state in self._states.values() for each in state.on_the_way]
        if self.max_lag is None or not on_the_way:
            return True
        left = sorted(on_the_way + [each.version for each in self._oldest()[self.batch :]])
        turns = ((self.version + 1 + i // self.batch, each) for i, each in enumerate(left))
        return all(turn - version <= self.max_lag for turn, version in turns)

    def take(self) -> Sequence[WaitingUnroll]:
        """Return the oldest unrolls, as many as one update uses."""
        ordered = self._oldest()
        self._taken, self._waiting = ordered[: self.batch], ordered[self.batch :]
        return self._taken

    def lags(self) -> list[int]:
        """Return the lag of each unroll that was taken last, where it is defined."""
        return [self.version - each.version for each in self._taken if each.comparable]

    def learnt(self, version: int) -> None:
        """Record that the unrolls taken made a version: their actors may begin as many more."""
        self.version = version
        self._taken = []
        self._permit_more()

    def permits(self) -> dict[int, tuple[int, int, int]]:
        """Return for each actor: its incarnation, how many unrolls it may begin, oldest weights."""
        return {
            actor: (state.incarnation, state.permitted, state.least)
            for actor, state in self._states.items()
        }

    def _permit_more(self) -> None:
        """Permit as many unrolls as each actor may have in flight, to the one with fewest first.

        All actors together never have more than can be learnt from within `max_lag`.
        """
        waiting = Counter(each.actor for each in self._waiting if each.permitted)
        begun = {
            actor: len(state.on_the_way) + waiting[actor] for actor, state in self._states.items()
        }
        room = sum(max(0, self.in_flight - each) for each in begun.values())
        if self.max_lag is not None:
            on_the_way = sum(len(state.on_the_way) for state in self._states.values())
            most = (self.max_lag + 1) * self.batch
            room = min(room, most - on_the_way - len(self._waiting))
        for _ in range(room):
            actor = min(begun, key=begun.__getitem__)
            begun[actor] += 1
            state = self._states[actor]
            state.permitted += 1
            state.least = self.version
            state.on_the_way.append(self.version)

    def _oldest(self) -> list[WaitingUnroll]:
        """Return the waiting unrolls, oldest version first, then in order of arrival."""
        return sorted(self._waiting, key=lambda each: each.version)

    def _count(self, actor: int, incarnation: int, session: int, number: int) -> None:
        """Raise TaskError for an unroll that arrived before, or after a missing one."""
        source = actor, incarnation, session
        # The numbers that a previous incarnation of the learner has used are unknown here.
        due = self._numbers.get(source, 0 if session == self.session else number - 1) + 1
        if number != due:
            raise TaskError(
                f"unroll {number} of actor {actor} arrived when {due} was expected",
                "each unroll is used exactly once, and in order; one was lost or sent twice",
                "report it",
            )
        self._numbers[source] = number
