"""`Feed`: experience on its way from the nodes that act to the node where replay lives."""

from dataclasses import dataclass, field
from typing import Any

from muster.data.batch import Transitions
from muster.flow import Channel, register_dataclass


@register_dataclass
@dataclass(slots=True, eq=False)
class Fragment:
    """Some steps of one node's environments, and what is to be known of them."""

    data: Transitions
    version: int
    """Of the weights that chose the actions."""
    note: Any = field(default=None)
    """Whatever its sender wants to be told with it."""


register_dataclass(Transitions)


class FragmentLog:
    """Versions and notes of the fragments that came."""

    def __init__(self) -> None:
        self.notes: list[Any] = []
        """Of the fragments, oldest first; the reader clears the list."""
        self.versions: list[int] = []
        """The same of their versions."""

    def add(self, version: int, note: Any) -> None:
        """Add those of one fragment."""
        self.versions.append(version)
        if note is not None:
            self.notes.append(note)


class Feed(FragmentLog):
    """Brings fragments home: in order for each node, none lost, none twice, bounded.

    Args:
        name: The same on all nodes.
        home: Where replay lives.
        in_flight: Fragments that each node may have sent and not seen stored; then it waits.
    """

    def __init__(self, name: str, home: str | int, in_flight: int = 4) -> None:
        super().__init__()
        self._channel = Channel(f"replay.{name}", home, in_flight)

    @property
    def is_home(self) -> bool:
        """Whether replay is on this node."""
        return self._channel.is_home

    @property
    def waited(self) -> float:
        """Seconds that sending has waited for room so far."""
        return self._channel.waited

    def send(self, fragment: Fragment) -> bool:
        """Send, and wait while there is no room. False if the run finished first."""
        return self._channel.put(fragment)

    def receive(self) -> Transitions | None:
        """Wait for the next fragment; None when the run finished and none is left."""
        fragment = self._channel.get()
        if fragment is None:
            return None
        self.add(fragment.version, fragment.note)
        data: Transitions = fragment.data
        return data

    def waiting(self) -> int:
        """Return how many fragments can be received at once."""
        return len(self._channel)
