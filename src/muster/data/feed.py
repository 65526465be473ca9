"""`Feed`: sends experience from the nodes that act to the node that holds replay."""

from dataclasses import dataclass, field
from typing import Any

from muster.data.block import StepBlock
from muster.data.steps import FragmentSource
from muster.errors import TaskError
from muster.flow import Channel, register_dataclass


@register_dataclass
@dataclass(slots=True, eq=False)
class Fragment:
    """Some steps of one node's environments, and their metadata."""

    data: StepBlock
    version: int
    """Version of the weights that chose the actions."""
    number: int
    """Number among the fragments of its sender, from 1: the next one continues it."""
    note: Any = field(default=None)
    """Any data that the sender attaches."""


register_dataclass(StepBlock)


class FragmentLog:
    """Versions and notes of the fragments that arrived."""

    def __init__(self) -> None:
        self.notes: list[Any] = []
        """Notes of the fragments, oldest first; the reader clears the list."""
        self.versions: list[int] = []
        """Versions of the fragments, likewise."""

    def add(self, version: int, note: Any) -> None:
        """Add version and note of one fragment."""
        self.versions.append(version)
        if note is not None:
            self.notes.append(note)


class Feed(FragmentLog):
    """Sends fragments home: in order for each node, none lost, none twice, bounded.

    Args:
        name: The same on all nodes.
        home: The node that holds replay.
        in_flight: Fragments that each node may have sent and not seen stored; then the node waits.
    """

    def __init__(self, name: str, home: str | int, in_flight: int = 4) -> None:
        super().__init__()
        self._channel = Channel(f"replay.{name}", home, in_flight)
        self._sent = 0

    @property
    def is_home(self) -> bool:
        """Whether this node holds replay."""
        return self._channel.is_home

    @property
    def waited(self) -> float:
        """Seconds that sending has waited for room so far."""
        return self._channel.waited

    def send(self, data: StepBlock, version: int, note: Any) -> bool:
        """Send, and wait while there is no room. False if the run finished first."""
        self._sent += 1
        return self._channel.put(Fragment(data, version, self._sent, note))

    def receive(self) -> tuple[Fragment, FragmentSource] | None:
        """Wait for the next fragment; None when the run finished and none is left."""
        parcel = self._channel.get_with_source()
        if parcel is None:
            return None
        fragment: Fragment = parcel.value
        self.add(fragment.version, fragment.note)
        return fragment, FragmentSource((parcel.sender, parcel.incarnation), fragment.number)

    def waiting(self) -> int:
        """Return the number of fragments that can be received immediately."""
        return len(self._channel)


def feed_at_home(feed: Feed | None) -> Feed:
    """Return the feed of a buffer that receives; raise TaskError if the buffer cannot."""
    if feed is None or not feed.is_home:
        raise TaskError(
            "receive() of this buffer is not possible",
            "other nodes send only to a buffer that has a home"
            if feed is None
            else "its home is another node",
            'ReplayBuffer(..., home="role.learner"), on the learner',
        )
    return feed
