"""`ParameterStore`: the weights of a `ParameterServer`, in its actor.

    gradients -> seen before? -> may they be applied yet? -> Adam on one flat vector -> next version

With `max_lag` a gradient waits while applying it would make another learner's, which is still being
computed, too old: the others have to be applicable after it, the oldest first.
"""

import asyncio
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from muster.actors.ray_here import need_ray
from muster.errors import OptionError, TaskError

Array = NDArray[Any]

_READERS_FIRST = 0.02
"""Seconds in which those who waited read what was pushed, before this actor makes a copy of it: the
copy takes as much of the machine as all of their reading."""


class ParameterStore:
    """What lives in the actor. Its methods take turns, except where one waits."""

    def __init__(
        self,
        weights: dict[str, Array],
        lr: float | None,
        max_grad_norm: float | None,
        max_lag: int | None,
    ) -> None:
        self._version = 1
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
            from muster.nets import Adam  # and with it torch: only who learns needs it

            self._adam = Adam(self._vector, lr)
        self._max_grad_norm = max_grad_norm
        self._max_lag = max_lag
        self._lives: dict[int, tuple[int, int]] = {}  # learner: incarnation, last sequence
        self._holds: dict[int, int] = {}  # learner: the version it computes gradients for
        self._applied: dict[int, int] = {}
        self._repeated = 0
        self._lags = [math.inf, 0.0, 0.0]  # least, sum, most

    async def push(self, pushed: list[Any], shapes: dict[str, tuple[int, ...]]) -> int:
        """Make these the newest weights, and return their version once they are safe here.

        Who waits for them gets them from who pushed them, at once; from then on they are owned
        here, so that they live as long as this actor does.

        Args:
            pushed: A reference to them, in a list, so that it is not fetched on the way.
            shapes: Theirs, by name.
        """
        if shapes != {name: each.shape for name, each in self._weights.items()}:
            raise OptionError(
                f"weights {_shapes(shapes)} cannot be pushed",
                f"the first ones were {_shapes(_shapes_of(self._weights))}",
                "push what an agent of the same kind has",
            )
        async with self._writing:
            version = self._version + 1
            self._published = version, pushed[0]
            await self._next_version()
            try:
                await asyncio.sleep(_READERS_FIRST)
                weights = await pushed[0]
                # On a thread, because those who wait are answered meanwhile.
                own = await asyncio.get_running_loop().run_in_executor(None, self._own, weights)
                self._published = version, own
            except BaseException:  # who pushed them died: this version is what there was before
                self._published = 0, None
                raise
        return version

    async def pull(self, newer_than: int, seconds: float | None) -> tuple[int, list[Any]] | None:
        """Return the newest version and a reference to its weights; None if it is not newer."""
        if self._version <= newer_than and seconds != 0:
            async with self._changed:
                newer = self._changed.wait_for(lambda: self._version > newer_than)
                try:
                    await asyncio.wait_for(newer, seconds)
                except TimeoutError:
                    return None
        if self._version <= newer_than:
            return None
        if self._published[0] != self._version:
            self._published = self._version, need_ray().put(self._weights)
        # In a list: a bare reference would be fetched and sent with the answer.
        return self._version, [self._published[1]]

    async def join(self, learner: int, incarnation: int) -> tuple[int, dict[str, Array]]:
        """Note that a learner begins, and return what it begins with."""
        self._refuse_old_life(learner, incarnation)
        life, last = self._lives.get(learner, (incarnation, 0))
        self._lives[learner] = incarnation, last if life == incarnation else 0
        self._holds[learner] = self._version
        if self._max_lag is not None and self._max_lag < len(self._holds) - 1:
            raise OptionError(
                f"max_lag={self._max_lag} is not possible with {len(self._holds)} learners",
                "while one computes a gradient, each of the others may be applied",
                f"max_lag={len(self._holds) - 1}",
            )
        return self._version, self._copied()

    async def leave(self, learner: int, incarnation: int) -> None:
        """Wait for this learner no more."""
        if self._lives.get(learner, (None,))[0] == incarnation:
            self._holds.pop(learner, None)
            async with self._changed:
                self._changed.notify_all()

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
        self._refuse_old_life(learner, incarnation)
        life, last = self._lives.get(learner, (incarnation, 0))
        last = last if life == incarnation else 0
        if sequence <= last:
            self._repeated += 1
            return self._version, self._copied()
        if sequence != last + 1:
            raise TaskError(
                f"gradients {sequence} of learner {learner} came after {last}",
                "those in between were lost on the way, or numbered wrongly",
                f"sequence={last + 1}",
            )
        self._lives[learner] = incarnation, sequence
        self._holds[learner] = version
        async with self._changed:
            await self._changed.wait_for(lambda: self._may_apply(learner))
        async with self._writing:
            self._apply(gradients, learner, version)
            return await self._next_version(), self._copied()

    async def counts(self) -> dict[str, Any]:
        """Return what was done so far; see `ParameterServer.counts`."""
        least, total, most = self._lags
        count = sum(self._applied.values())
        return {
            "version": self._version,
            "gradients": count,
            "repeated": self._repeated,
            "applied": dict(self._applied),
            "lag_min": least if count else 0,
            "lag_mean": total / max(count, 1),
            "lag_max": most,
        }

    def _may_apply(self, learner: int) -> bool:
        """Whether all others can still be applied in time after this one, the oldest first."""
        if self._max_lag is None:
            return True
        others = sorted(held for who, held in self._holds.items() if who != learner)
        limit = self._max_lag
        return all(self._version + 1 + i - held <= limit for i, held in enumerate(others))

    def _apply(self, gradients: dict[str, Array], learner: int, version: int) -> None:
        self._grad[:] = 0
        for name, each in gradients.items():
            self._grad[self._places[name]] = each.reshape(-1)
        norm = self._adam.step(self._grad, self._max_grad_norm)
        if not math.isfinite(norm):
            from muster.nets import NonFiniteError

            raise NonFiniteError(
                f"the gradient of learner {learner} is not finite",
                "its data are not, or learning diverged; the weights were not changed",
                "a smaller lr",
            )
        lag = self._version - version
        least, total, most = self._lags
        self._lags = [min(least, lag), total + lag, max(most, lag)]
        self._applied[learner] = self._applied.get(learner, 0) + 1
        self._holds[learner] = self._version + 1

    async def _next_version(self) -> int:
        self._version += 1
        version = self._version
        async with self._changed:
            self._changed.notify_all()
        return version

    def _own(self, weights: dict[str, Array]) -> Any:
        """Take weights over, and return a reference to them that is this actor's own."""
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
                    "push what an agent of the same kind computed",
                )

    def _refuse_old_life(self, learner: int, incarnation: int) -> None:
        newest = self._lives.get(learner, (incarnation, 0))[0]
        if incarnation < newest:
            raise TaskError(
                f"learner {learner} was replaced",
                f"a later incarnation ({newest}) has begun since this one ({incarnation})",
                "end this learner",
            )


def _shapes_of(weights: Mapping[str, Array]) -> dict[str, tuple[int, ...]]:
    return {name: each.shape for name, each in weights.items()}


def _shapes(shapes: Mapping[str, tuple[int, ...]]) -> str:
    return ", ".join(f"{name} {shape}" for name, shape in shapes.items())
