"""`ParameterServer`: the newest weights, by version, for every node that acts with them.

home:   push(weights) -> version -> one message on a board, one copy for all readers
others: pull(newer_than=v) -> Weights, or wait
others: push_gradients(...) -> home: gradients(), each exactly once
"""

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from muster.errors import OptionError, TaskError
from muster.flow.board import Publisher, Subscriber
from muster.flow.channel import Channel
from muster.flow.ledger import VersionLedger
from muster.flow.node import this_node
from muster.flow.places import find_home
from muster.flow.wire import pack

_INCARNATION = 1 << 32
"""Versions of a replaced home are higher than all versions before it."""


@dataclass(frozen=True, slots=True)
class Weights:
    """One version of the weights."""

    version: int
    values: Any
    """The weights as they were pushed: a `state_dict()`, a vector, a dict of arrays."""
    info: Mapping[str, Any] = field(default_factory=dict)
    """Facts about them that were pushed too, such as counters."""


class ParameterServer:
    """Holds weights that one node changes and all read. In a single process it only holds them.

    Args:
        weights: The first version; None for none yet.
        name: The same on all nodes.
        home: The node that pushes: `role.<name>`, `node.<id>` or a node id.
    """

    def __init__(self, weights: Any = None, *, name: str = "weights", home: str | int = 0) -> None:
        self.name = name
        self._changed = threading.Condition()
        self._newest: Weights | None = None
        self._node = this_node()
        self._home = 0
        self._publisher: Publisher | None = None
        self._ledger = VersionLedger()
        if self._node is not None:
            place = self._node.place
            self._home = find_home(self._node, home, f"parameter server {name!r}")
            board = f"weights.{name}"
            if self.is_home:
                self._publisher = Publisher(self._node.dispatcher, board, place.linked)
                self._ledger.version = place.incarnation * _INCARNATION
            else:
                Subscriber(self._node.dispatcher, board, self._receive)
            self._node.on_finish(self._wake)
        self._gradients = Channel(f"gradients.{name}", home=self._home, capacity=4)
        if weights is not None and self.is_home:
            self.push(weights)

    @property
    def is_home(self) -> bool:
        """Whether this node pushes."""
        return self._node is None or self._node.place.node_id == self._home

    @property
    def version(self) -> int:
        """The newest version on this node; it only increases. 0 before the first."""
        newest = self._newest
        return 0 if newest is None else newest.version

    def push(self, weights: Any, **info: Any) -> int:
        """Make these the newest weights, and return their version.

        Args:
            weights: Anything that can be sent. Readers on other nodes receive their own copies; on
                this node the object itself is kept.
            **info: Facts about the weights.
        """
        if not self.is_home:
            raise TaskError(
                f"weights of {self.name!r} are not pushed here",
                f"their home is node {self._home}: if two nodes pushed weights, those of one would "
                "be lost",
                "server.push_gradients(...), which loses nothing",
            )
        version = self._ledger.next()
        if self._publisher is not None:
            message = {"version": version, "values": weights, "info": info}
            self._publisher.publish({"weights"}, pack(message, self.name))
        with self._changed:
            self._newest = Weights(version, weights, info)
            self._changed.notify_all()
        return version

    def pull(self, newer_than: int | None = None, timeout: float | None = None) -> Weights | None:
        """Return the newest weights, once there are any newer than `newer_than`.

        With `timeout=0` it does not wait. Returns None if there are none within the timeout, or if
        the run finishes first.
        """
        least = 0 if newer_than is None else newer_than
        if self.version <= least and timeout != 0:
            self._wait(least, timeout)
        newest = self._newest
        return newest if newest is not None and newest.version > least else None

    def get_weights(self) -> Any:
        """Return the newest weights themselves.

        Raises:
            TaskError: There are none yet.
        """
        newest = self._newest
        if newest is None:
            raise TaskError(
                f"there are no weights in {self.name!r} yet", "none were pushed", "server.pull()"
            )
        return newest.values

    def save_weights(self, path: str | Path) -> Path:
        """Write the newest weights, a dict of arrays or tensors, as safetensors."""
        weights = self.get_weights()
        if not isinstance(weights, Mapping):
            weights = {"weights": weights}
        save_file, arrays = _to_save(weights, self.name)
        target = Path(path)
        if target.suffix != ".safetensors":
            target = target.with_name(target.name + ".safetensors")
        aside = target.with_name(f".{target.name}.partial")
        save_file(arrays, aside)
        aside.replace(target)
        return target

    def push_gradients(self, gradients: Any, version: int, timeout: float | None = None) -> bool:
        """Send gradients home, where each is used exactly once. False if the run finished first.

        Args:
            gradients: Anything that can be sent.
            version: The version of the weights for which they were computed.
            timeout: Maximum wait in seconds while home has not used the last ones.
        """
        return self._gradients.put((version, gradients), timeout)

    def gradients(self, timeout: float | None = None) -> Iterator[tuple[int, Any]]:
        """Yield `(version, gradients)` as they arrive, at home, until the run finishes."""
        while (item := self._gradients.get(timeout)) is not None:
            yield item

    def take_gradients(self) -> list[tuple[int, Any]]:
        """Return all `(version, gradients)` that have arrived, at home; wait for the first.

        The list is empty if the run finishes first.
        """
        found = []
        for item in self.gradients():
            found.append(item)
            if not len(self._gradients):
                break
        return found

    def _receive(self, sender: int, message: Mapping[str, Any]) -> None:
        with self._changed:
            if message["version"] > self.version:
                self._newest = Weights(message["version"], message["values"], message["info"])
                self._changed.notify_all()

    def _wait(self, least: int, timeout: float | None) -> None:
        def done() -> bool:
            return self.version > least or (self._node is not None and self._node.is_finished)

        if self._node is not None:
            self._node.dispatcher.wait_for(self._changed, done, timeout)
        else:
            with self._changed:
                self._changed.wait_for(done, timeout)

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()


def _to_save(weights: Mapping[Any, Any], name: str) -> tuple[Callable[..., None], dict[str, Any]]:
    """Return a function that saves these weights, and the weights as its argument.

    NumPy has no bfloat16, so torch saves tensors, if there are any.
    """
    import numpy as np

    torch = sys.modules.get("torch")
    if torch is not None and any(isinstance(value, torch.Tensor) for value in weights.values()):
        from safetensors.torch import save_file

        return save_file, {
            str(key): torch.as_tensor(value).detach().contiguous() for key, value in weights.items()
        }
    from safetensors.numpy import save_file as save_arrays

    arrays = {str(key): np.ascontiguousarray(value) for key, value in weights.items()}
    if any(array.dtype == object for array in arrays.values()):
        raise OptionError(
            f"the weights of {name!r} cannot be saved",
            "a file holds arrays and tensors by name, one level deep",
            "server.push(model.state_dict())",
        )
    return save_arrays, arrays
