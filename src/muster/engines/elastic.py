"""`ElasticNodes`: the nodes that a run continues without: they join late, leave, and join again.

    late, or its machine was lost -> away -> room on a machine -> starts, Listening -> AtRun: joined

The supervisor starts and ends these nodes as it does all others. This file decides what only
elastic nodes have: who is present, what the other nodes are told about it, and when an absent node
is no longer needed. Each node's part of this state is in its `Member`.
"""

import time
from collections.abc import Iterator, Sequence

from muster.engines.member import Member, tell_all
from muster.engines.orders import End, Gone, NodeJoined
from muster.engines.restart_policy import NodeFailure


class ElasticNodes:
    """The elastic nodes of a run; there may be none.

    Args:
        members: All nodes of the run, elastic or not.
    """

    def __init__(self, members: Sequence[Member]) -> None:
        self._members = members
        self._elastic = [member for member in members if member.elastic]

    @property
    def others_ended(self) -> bool:
        """Whether every node has ended, not counting absent elastic nodes."""
        return all(member.ended for member in self._members if not member.away)

    def absences(self, newcomer: Member) -> Iterator[Gone]:
        """Yield the orders that tell a node that starts for which others it must not wait."""
        for other in self._members:
            if other is newcomer:
                continue
            if not other.has_joined:
                yield _absent(other)
            if other.ended:
                yield Gone(other.place.node_id)

    def join(self, member: Member) -> None:
        """Record that a node has joined, for the first time or again."""
        member.has_joined = True
        tell_all(self._members, NodeJoined(member.place.node_id))
        member.say(f"joined; {self._how_many()}")

    def leaves(self, member: Member) -> bool:
        """Whether a node that ended is only absent from now on: the run has not failed."""
        return member.elastic and (member.has_lost_place or not member.has_joined)

    def leave(self, member: Member, failure: NodeFailure) -> bool:
        """Continue without a node, and let it join again as soon as there is room.

        Returns:
            False if the node failed too often before it had joined, and is not started again.
        """
        # A node that had joined left with its machine, which is not its own failure.
        given_up = None if member.has_joined else member.restart_policy.record_failure(failure)
        was_at_work, member.has_joined, member.replaced = member.has_joined, False, None
        if not member.away:
            member.away, member.last_there = True, member.place.incarnation
            tell_all(self._members, _absent(member))
        if was_at_work:
            member.has_left = True
            member.say(f"left: {failure.how}; {self._how_many()}")
        elif given_up:
            member.say(f"does not join: {given_up}")
            return False
        member.restart_at = time.monotonic() + member.restart_policy.back_off()
        return True

    def pass_on(self, order: End, sender: Member) -> None:
        """Tell the elastic nodes what another node has told all nodes that it is linked to.

        That node may not be linked to a newcomer yet, and cannot tell it.
        """
        for member in self._elastic:
            if member.listening and member is not sender:
                member.tell(order)

    def end_absent(self) -> None:
        """End the nodes that wait for room, or are starting: they are no longer needed."""
        for member in self._elastic:
            if member.away and not member.ended:
                if member.alive:
                    member.kill()
                else:
                    member.restart_at, member.ended = None, True

    def _how_many(self) -> str:
        """Describe how many of the nodes, which all have the same role, are present."""
        there = sum(member.has_joined and not member.ended for member in self._elastic)
        role = self._elastic[0].place.role
        return f"there are {there} of at most {len(self._elastic)} {role} nodes"


def _absent(member: Member) -> Gone:
    """Return the order not to wait for an elastic node until a later incarnation is present."""
    return Gone(member.place.node_id, member.last_there)
