"""`ParameterStore`: the weights of a `ParameterServer`, in its actor.

    gradients -> seen before? -> may they be applied yet? -> Adam on one flat vector -> next version

The `VersionLedger` decides which gradients are used, and which have to wait. This class holds the
weights, and notifies clients that wait for a version.
"""

import asyncio
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from muster.actors.ray_here import need_ray
from muster.errors import OptionError, TaskError
from muster.flow.ledger import VersionLedger

Array = NDArray[Any]

_READERS_FIRST = 0.02
"""Seconds in which waiting clients read pushed weights before this actor copies them: the copy
takes as much of the machine as all of their reading."""


class ParameterStore:
    """The object in the actor. Its methods do not overlap, except while one waits."""

    def __init__(
        self,
        weights: dict[str, Array],
        lr: float | None,
        max_grad_norm: float | None,
        max_lag: int | None,
    ) -> None:
        self._ledger = VersionLedger(1, max_lag)
        self._published: tuple[int, Any] = (0, None)
        self._changed = asyncio.Condition()
        self._writing = asyncio.Lock()
        self._places: dict[str, slice] = {}
        start = 0
        for name, each in weights.items():
            self._places[name] = slice(start, start + each.size)
            start += each.size
        self._vector = np.zeros(start, np.float32)
        self._grad = np.zeros(start, np.float32)
        self._weights = {
            name: self._vector[self._places[name]].reshape(each.shape)
            for name, each in weights.items()
        }
        self._write(weights)
        self._adam: Any = None
        if lr is not None:
            from muster.nets import Adam  # and with it torch, which only learning needs

            self._adam = Adam(self._vector, lr)
        self._max_grad_norm = max_grad_norm

    async def push(self, pushed: list[Any], shapes: dict[str, tuple[int, ...]]) -> int:
        """Make these the newest weights, and return their version once this actor has a copy.

        Clients that wait get the weights from the pusher, at once. Then this actor owns a copy, so
        that they live as long as the actor.

        Args:
            pushed: A reference to the weights, in a list, so that Ray does not fetch it on the way.
            shapes: Shapes by name.
        """
        if shapes != {name: each.shape for name, each in self._weights.items()}:
            raise OptionError(
                f"weights {_shapes(shapes)} cannot be pushed",
                f"the first ones were {_shapes(_shapes_of(self._weights))}",
                "push the weights of an agent of the same kind",
            )
        async with self._writing:
            version = self._ledger.next()
            self._published = version, pushed[0]
            await self._tell()
            try:
                await asyncio.sleep(_READERS_FIRST)
                weights = await pushed[0]
                # On a thread, so that waiting clients are answered meanwhile.
                own = await asyncio.get_running_loop().run_in_executor(None, self._own, weights)
                self._published = version, own
            except BaseException:  # the pusher died: this version has the previous weights
                self._published = 0, None
                raise
        return version

    async def pull(self, newer_than: int, seconds: float | None) -> tuple[int, list[Any]] | None:
        """Return the newest version and a reference to its weights; None if it is not newer."""
        if self._ledger.version <= newer_than and seconds != 0:
            async with self._changed:
                newer = self._changed.wait_for(lambda: self._ledger.version > newer_than)
                try:
                    await asyncio.wait_for(newer, seconds)
                except TimeoutError:
                    return None
        if self._ledger.version <= newer_than:
            return None
        if self._published[0] != self._ledger.version:
            self._published = self._ledger.version, need_ray().put(self._weights)
        # In a list: Ray would fetch a bare reference and send its content with the answer.
        return self._ledger.version, [self._published[1]]

    async def join(self, learner: int, incarnation: int) -> tuple[int, dict[str, Array]]:
        """Register a learner, and return the version and weights that it starts with."""
        return self._ledger.join(learner, incarnation), self._copied()

    async def leave(self, learner: int, incarnation: int) -> None:
        """Unregister a learner, so that no other learner waits for it."""
        self._ledger.leave(learner, incarnation)
        await self._tell()

    async def push_gradients(
        self,
        gradients: dict[str, Array],
        learner: int,
        incarnation: int,
        sequence: int,
        version: int,
    ) -> tuple[int, dict[str, Array]]:
        """Apply gradients that were not applied before; see `ParameterServer.push_gradients`."""
        self._check(gradients)
        if self._ledger.accept(learner, incarnation, sequence, version):
            async with self._changed:
                await self._changed.wait_for(lambda: self._ledger.may_apply(learner))
            async with self._writing:
                self._apply(gradients, learner)
                self._ledger.applied(learner)
                await self._tell()
                return self._ledger.version, self._copied()
        return self._ledger.version, self._copied()

    async def counts(self) -> dict[str, Any]:
        """Return the counts so far; see `ParameterServer.counts`."""
        return self._ledger.counts()

    def _apply(self, gradients: dict[str, Array], learner: int) -> None:
        self._grad[:] = 0
        for name, each in gradients.items():
            self._grad[self._places[name]] = each.reshape(-1)
        norm = self._adam.step(self._grad, self._max_grad_norm)
        if not math.isfinite(norm):
            from muster.nets import NonFiniteError

            raise NonFiniteError(
                f"the gradient of learner {learner} is not finite",
                "its data are not finite, or learning diverged; the weights were not changed",
                "a smaller lr",
            )

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    def _own(self, weights: dict[str, Array]) -> Any:
        """Copy weights, and return a reference that this actor owns."""
        self._write(weights)
        return need_ray().put(self._weights)

    def _write(self, weights: dict[str, Array]) -> None:
        for name, each in self._weights.items():
            each[...] = weights[name]

    def _copied(self) -> dict[str, Array]:
        return {name: each.copy() for name, each in self._weights.items()}

    def _check(self, gradients: dict[str, Array]) -> None:
        if self._adam is None:
            raise TaskError(
                "this parameter server takes no gradients",
                "it was made without a learning rate",
                "ParameterServer(weights, lr=1e-3)",
            )
        for name, each in gradients.items():
            if name not in self._weights or each.shape != self._weights[name].shape:
                raise OptionError(
                    f"there are no weights for a gradient {name!r} {each.shape}",
                    f"the weights are {_shapes(_shapes_of(self._weights))}",
                    "push gradients that an agent of the same kind computed",
                )


def _shapes_of(weights: Mapping[str, Array]) -> dict[str, tuple[int, ...]]:
    return {name: each.shape for name, each in weights.items()}


def _shapes(shapes: Mapping[str, tuple[int, ...]]) -> str:
    return ", ".join(f"{name} {shape}" for name, shape in shapes.items())
