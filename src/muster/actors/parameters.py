"""`ParameterServer`: versions of weights; no gradient is lost or applied twice.

    push(weights) ────────────────────────> version, which always increases
    pull(newer_than=v) ───────────────────> None, or (version, weights): one object per version
    push_gradients(g, learner, ...) ──────> checked for repetition -> Adam -> next version

A version is one object in the object store, which the processes of one machine read in shared
memory. Clients that wait for a push get the object from the pusher. Then the actor copies and owns
it, so weights live as long as the actor, even if the pusher dies.
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
"""Seconds for which gradients are resent while the server is unreachable, and the pause between."""


class Pulled(NamedTuple):
    """Weights of one version. The arrays are shared and must not be written to."""

    version: int
    weights: dict[str, Array]


class ParameterServer(Block):
    """Holds the weights that learners change and workers act on.

    Args:
        weights: The first version: arrays by name, as `agent.parts()["policy"]` returns them.
        lr: Learning rate of Adam, for `push_gradients`; without it only `push` changes weights.
        max_grad_norm: A longer gradient is scaled down to this norm.
        max_lag: How many versions a gradient may be behind the newest weights when it is applied.
            Learners that are ahead then wait for those that are behind. None: no limit.
        **options: Options of Ray, such as `num_cpus` or `resources`.
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

        If several clients push, the last one wins; learners that share the work push gradients.
        """
        arrays = _as_arrays(weights)
        shapes = {name: each.shape for name, each in arrays.items()}
        return int(self._ask("push", [need_ray().put(arrays)], shapes))

    def pull(self, newer_than: int = 0, timeout: float | None = 0.0) -> Pulled | None:
        """Return the newest version and its weights, or None if it is not newer than `newer_than`.

        Args:
            newer_than: The version that the caller has.
            timeout: Seconds to wait for a newer version; None waits forever.
        """
        while (found := self._ask("pull", newer_than, timeout)) is not None:
            version, (ref,) = found
            try:
                return Pulled(version, need_ray().get(ref))
            except need_ray().exceptions.OwnerDiedError:
                continue  # the pusher died before the server had a copy; ask again
            except need_ray().exceptions.RayError as error:
                raise failure(self.name, error) from None
        return None

    def get_weights(self) -> dict[str, Array]:
        """Return the newest weights."""
        pulled = self.pull()
        assert pulled is not None  # there is a first version
        return pulled.weights

    def join(self, learner: int, incarnation: int) -> Pulled:
        """Register a learner that will push gradients, and return its initial weights."""
        return Pulled(*self._ask("join", learner, incarnation))

    def leave(self, learner: int, incarnation: int) -> None:
        """Unregister a learner, so that no other learner waits for it."""
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
        """Change the weights along gradients: once, even if the gradients are sent again.

        Args:
            gradients: By the names of the weights; weights that are not named stay unchanged.
            learner: Number of the learner.
            incarnation: Incarnation of the learner; gradients of an earlier one are rejected.
            sequence: Number of the gradient in that incarnation, from 1 and without gaps.
            version: Version of the weights that they were computed for.

        Returns:
            The newest version and weights; the caller owns the arrays and may write to them.
        """
        arguments = _as_arrays(gradients), learner, incarnation, sequence, version
        unavailable = need_ray().exceptions.ActorUnavailableError
        give_up = time.monotonic() + _PATIENCE
        while True:
            # It is unknown whether the first attempt arrived, and does not matter.
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
        """Return the counts so far; see `VersionLedger.counts`."""
        found: dict[str, Any] = self._ask("counts")
        return found

    def save_weights(self, name: str | Path) -> Path:
        """Write the newest weights to a safetensors file on this machine, and return its path."""
        from muster.flow import ParameterServer as HeldHere

        return HeldHere(self.get_weights()).save_weights(name)

    def _ask(self, method: str, *arguments: Any) -> Any:
        return Call(self.name, getattr(self.actor, method).remote(*arguments)).result()


def _as_arrays(given: Arrays) -> dict[str, Array]:
    if not isinstance(given, Mapping) or not given:
        raise OptionError(
            f"{type(given).__name__} is not possible for weights or gradients",
            "both must be dicts of arrays by name",
            'ParameterServer(agent.parts()["policy"])',
        )
    arrays = {str(name): np.asarray(each) for name, each in given.items()}
    for name, each in arrays.items():
        if each.dtype.kind not in "fiub":
            raise OptionError(
                f"{name!r} has dtype {each.dtype}", "weights are numbers", "model.state_dict()"
            )
    return arrays
