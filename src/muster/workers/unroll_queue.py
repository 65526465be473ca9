"""`UnrollQueue`: which unrolls a learner takes next, and how many each actor may begin.

    joined(actor, incarnation)   a process of an actor is there: forget what the last had begun
    left(actor)                  none is: forget what it had begun
    allow(in_flight)             how many unrolls each may have begun, of so many actors
    arrived(...)                 an unroll is here; each exactly once, by its number
    ready() -> take()            the oldest ones, if no other is made too old by it
    learnt(version)              their actors may begin as many more, with this version or later
    permits()                    what actors are told

Only decides and counts: it waits for nothing, and reads no unroll. Every actor has at most
`in_flight` unrolls that are begun and not learnt from. What it may begin next is said together
with the oldest weights for it, so the learner has a lower limit of the version of every unroll
that is on its way, and makes no version that would leave one of them older than `max_lag` when its
turn comes, the oldest first. While actors come and go, one of them may have less than that: all
together have no more than can be learnt from within `max_lag`.
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
    """Of the weights that it was begun with; of one from an earlier session, when it came."""
    actor: int
    permitted: bool
    """Whether it is one of those that its actor may have in flight."""
    comparable: bool
    """Whether its weights are of this session, so that it has a lag."""


@dataclass(slots=True)
class _ActorState:
    """What the learner knows of an actor."""

    least: int
    """Oldest weights for the last unroll that it may begin."""
    incarnation: int = 0
    permitted: int = 0
    """Unrolls that its present process may begin in all."""
    on_the_way: list[int] = field(default_factory=list)
    """Lower limits of the versions of those that may be begun and have not arrived, in order."""


@dataclass(slots=True)
class UnrollQueue:
    """Unrolls between their actors and the learner.

    Args:
        actors: Their nodes.
        batch: Unrolls that one version is made of.
        in_flight: Unrolls that each actor may have begun and not seen learnt from.
        max_lag: Most versions from the weights of an unroll to those that learn from it; None for
            any number.
        version: The present one of the learner's weights.
        session: Which process of the learner this is.
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
        """Return how many unrolls have arrived and were not taken."""
        return len(self._waiting)

    def joined(self, actor: int, incarnation: int) -> None:
        """Note which process of an actor is there.

        What arrived from the one before is learnt from; what it had begun besides is lost with it.
        """
        state = self._states.get(actor)
        if state is None or incarnation > state.incarnation:
            self._states[actor] = _ActorState(self.version, incarnation)
            self._permit_more()

    def left(self, actor: int) -> None:
        """Note that an actor is away: what it had begun is lost, what arrived is learnt from."""
        if self._states.pop(actor, None) is not None:
            self._permit_more()

    def allow(self, in_flight: int) -> None:
        """Say how many unrolls each actor may have begun and not seen learnt from, from now on.

        What was permitted stays so: who has more begins none until it has less.
        """
        self.in_flight = in_flight
        self._permit_more()

    def arrived(
        self, content: Any, actor: int, incarnation: int, session: int, number: int, version: int
    ) -> None:
        """Take in an unroll.

        Args:
            content: Returned by `take`.
            actor: Who sent it.
            incarnation: Which process of that node.
            session: Which process of the learner its weights were from.
            number: Of the unrolls that this process has begun in that session, from 1.
            version: Of its weights.

        Raises:
            TaskError: One before it is missing, or it came before.
        """
        self._count(actor, incarnation, session, number)
        self.joined(actor, incarnation)
        state = self._states[actor]
        comparable = session == self.session
        permitted = comparable and incarnation == state.incarnation
        if permitted:
            del state.on_the_way[:1]
            # Versions only rise: those that it has begun since are not older.
            state.on_the_way = [max(version, each) for each in state.on_the_way]
        version = version if comparable else self.version
        self._waiting.append(WaitingUnroll(content, version, actor, permitted, comparable))

    def ready(self) -> bool:
        """Whether a version may be made of the oldest unrolls that are here."""
        if len(self._waiting) < self.batch:
            return False
        on_the_way = [each for state in self._states.values() for each in state.on_the_way]
        if self.max_lag is None or not on_the_way:
            return True
        left = sorted(on_the_way + [each.version for each in self._oldest()[self.batch :]])
        turns = ((self.version + 1 + i // self.batch, each) for i, each in enumerate(left))
        return all(turn - version <= self.max_lag for turn, version in turns)

    def take(self) -> Sequence[WaitingUnroll]:
        """Return the oldest unrolls, as many as a version is made of."""
        ordered = self._oldest()
        self._taken, self._waiting = ordered[: self.batch], ordered[self.batch :]
        return self._taken

    def lags(self) -> list[int]:
        """Return the lag of each that was taken last, where it has one."""
        return [self.version - each.version for each in self._taken if each.comparable]

    def learnt(self, version: int) -> None:
        """Note that what was taken made a version: their actors may begin as many more."""
        self.version = version
        self._taken = []
        self._permit_more()

    def permits(self) -> dict[int, tuple[int, int, int]]:
        """Return for each actor: which process, how many unrolls it may begin, oldest weights."""
        return {
            actor: (state.incarnation, state.permitted, state.least)
            for actor, state in self._states.items()
        }

    def _permit_more(self) -> None:
        """Let each actor begin as many unrolls as it may have in flight, who has fewest first.

        All together never have more than can be learnt from within `max_lag`, whoever has joined.
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
        """Return what is here, the oldest first, and of equals what came first."""
        return sorted(self._waiting, key=lambda each: each.version)

    def _count(self, actor: int, incarnation: int, session: int, number: int) -> None:
        """Refuse an unroll that came before, or after one that did not come."""
        source = actor, incarnation, session
        # What the process before this learner has learnt from is not known here.
        due = self._numbers.get(source, 0 if session == self.session else number - 1) + 1
        if number != due:
            raise TaskError(
                f"unroll {number} of actor {actor} came where {due} was due",
                "each is learnt from exactly once, and in order; one was lost or sent twice",
                "report it",
            )
        self._numbers[source] = number
