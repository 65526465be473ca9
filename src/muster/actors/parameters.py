"""`ParameterServer`: weights by version, and gradients of which none is lost or used twice.

    push(weights) ────────────────────────> version, which only rises
    pull(newer_than=v) ───────────────────> None, or (version, weights): one object per version
    push_gradients(g, learner, ...) ──────> checked for repetition -> Adam -> next version

A version is one object in the store, which processes of one machine read in the same memory. Who
waits for a push gets it from who pushed; then the actor takes it over and owns it, so weights live
as long as it does, whoever pushed them.
"""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from muster.actors.block import Block
from muster.actors.calls import Call, failure
from muster.actors.parameter_store import ParameterStore
from muster.actors.ray_here import need_ray
from muster.errors import OptionError

Array = NDArray[Any]
Arrays = Mapping[str, Array]

_PATIENCE, _PAUSE = 30.0, 0.1
"""Seconds that gradients are sent again while the server cannot be reached, and in between."""


class Pulled(NamedTuple):
    """Weights, as they were at one version. The arrays are shared, and must not be written to."""

    version: int
    weights: dict[str, Array]


class ParameterServer(Block):
    """Holds the weights that learners change and workers act on.

    Args:
        weights: The first version: arrays by name, as `agent.parts()["policy"]` returns them.
        lr: Learning rate of Adam, for `push_gradients`; without it only `push` changes weights.
        max_grad_norm: A longer gradient is shortened to this.
        max_lag: How many versions may have been made since the weights that a gradient was computed
            for. Learners that are ahead then wait for those that are behind. None: any number.
        **options: For Ray, such as `num_cpus` or `resources`.
    """

    def __init__(
        self,
        weights: Arrays,
        lr: float | None = None,
        max_grad_norm: float | None = 10.0,
        max_lag: int | None = None,
        **options: Any,
    ) -> None:
        arguments = {
            "weights": _as_arrays(weights),
            "lr": lr,
            "max_grad_norm": max_grad_norm,
            "max_lag": max_lag,
        }
        super().__init__("parameter server", ParameterStore, arguments, {"num_cpus": 0, **options})

    def push(self, weights: Arrays) -> int:
        """Make these the newest weights, and return their version.

        Of several who push, the last one's stay: learners that share the work push gradients.
        """
        arrays = _as_arrays(weights)
        shapes = {name: each.shape for name, each in arrays.items()}
        return int(self._ask("push", [need_ray().put(arrays)], shapes))

    def pull(self, newer_than: int = 0, timeout: float | None = 0.0) -> Pulled | None:
        """Return the newest version and its weights, or None if it is not newer than that.

        Args:
            newer_than: The version that the caller has.
            timeout: Seconds to wait for a newer one; None waits for ever.
        """
        while (found := self._ask("pull", newer_than, timeout)) is not None:
            version, (ref,) = found
            try:
                return Pulled(version, need_ray().get(ref))
            except need_ray().exceptions.OwnerDiedError:
                continue  # who pushed them died while they were taken over: the server knows
            except need_ray().exceptions.RayError as error:
                raise failure(self.name, error) from None
        return None

    def get_weights(self) -> dict[str, Array]:
        """Return the newest weights."""
        pulled = self.pull()
        assert pulled is not None  # there is a first version
        return pulled.weights

    def join(self, learner: int, incarnation: int) -> Pulled:
        """Say that a learner begins to push gradients, and return what it begins with."""
        return Pulled(*self._ask("join", learner, incarnation))

    def leave(self, learner: int, incarnation: int) -> None:
        """Say that a learner pushes no more: nobody waits for it."""
        self._ask("leave", learner, incarnation)

    def push_gradients(
        self,
        gradients: Arrays,
        *,
        learner: int,
        incarnation: int,
        sequence: int,
        version: int,
    ) -> Pulled:
        """Change the weights along gradients: once, however often these are sent.

        Args:
            gradients: By the names of the weights; weights that are not named stay.
            learner: Whose they are.
            incarnation: Which life of that learner; gradients of an earlier one are refused.
            sequence: Their number in that life, from 1 and without gaps.
            version: Of the weights that they were computed for.

        Returns:
            The newest version and weights, theirs to keep and to write to.
        """
        arguments = _as_arrays(gradients), learner, incarnation, sequence, version
        unavailable = need_ray().exceptions.ActorUnavailableError
        give_up = time.monotonic() + _PATIENCE
        while True:
            # Whether the first attempt arrived cannot be known, and need not be.
            ref = self.actor.push_gradients.remote(*arguments)
            try:
                return Pulled(*need_ray().get(ref))
            except unavailable as error:
                if time.monotonic() > give_up:
                    raise failure(self.name, error) from None
                time.sleep(_PAUSE)
            except need_ray().exceptions.RayError as error:
                raise failure(self.name, error) from None

    def counts(self) -> dict[str, Any]:
        """Return what was done so far; see `VersionLedger.counts`."""
        found: dict[str, Any] = self._ask("counts")
        return found

    def save_weights(self, name: str | Path) -> Path:
        """Write the newest weights to a safetensors file, here, and return where it is."""
        from muster.flow import ParameterServer as HeldHere

        return HeldHere(self.get_weights()).save_weights(name)

    def _ask(self, method: str, *arguments: Any) -> Any:
        return Call(self.name, getattr(self.actor, method).remote(*arguments)).result()


def _as_arrays(given: Arrays) -> dict[str, Array]:
    if not isinstance(given, Mapping) or not given:
        raise OptionError(
            f"{type(given).__name__} is not possible for weights or gradients",
            "they are arrays by name",
            'ParameterServer(agent.parts()["policy"])',
        )
    arrays = {str(name): np.asarray(each) for name, each in given.items()}
    for name, each in arrays.items():
        if each.dtype.kind not in "fiub":
            raise OptionError(
                f"{name!r} is of type {each.dtype}", "weights are numbers", "model.state_dict()"
            )
    return arrays
