"""A policy that reads images without torch: convolutions and layers as compiled calls.

    images -> convolutions (conv_kernels) -> layers, heads (FusedNet) -> loss -> the same way back

    why_not_fused_images  the one rule for which networks go this way
    FusedImages           the face of `PolicyNet`, and `gradients` of several slots at once

The bits of an image do not depend on those beside it: all environments of a worker act in one
call. Only the gradient of weights is summed up slot by slot.
"""

import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from muster.errors import OptionError
from muster.nets import conv_kernels as kernels
from muster.nets.action_head import ActionHead
from muster.nets.actor_critic import ActorCritic
from muster.nets.clipped_objective import ClippedObjective
from muster.nets.conv_plan import plan_convolutions, why_no_convolutions
from muster.nets.flat import FlatParameters, aligned
from muster.nets.fused_net import FusedNet
from muster.nets.fused_plan import count_parameters, flattened, why_no_chain, why_not_compiled
from muster.nets.policy_net import Array, Floats, Objective, Rollout
from muster.nets.torch_policy import most_likely, write_logp


def why_not_fused_images(module: nn.Module, flat: FlatParameters) -> str | None:
    """Say what keeps a network that reads images from the compiled path, or None if nothing does.

    The rule: it is an `ActorCritic` that reads images of uint8 as `why_no_convolutions` has it,
    and layers as `why_no_chain` has them; every parameter is learnt and used once.
    """
    if type(module) is not ActorCritic:
        return f"{type(module).__name__} is not the standard ActorCritic"
    reason = why_no_convolutions(module.encoder)
    if reason is not None:
        return reason
    if module.normalizer is not None:
        return "images are normalised"
    nets = [list(flattened(net)) for net in (module.trunk, module.policy, module.value) if net]
    for net in nets:
        reason = why_no_chain(net)
        if reason is not None:
            return reason
    convolutions = 2 * sum(isinstance(part, nn.Conv2d) for part in module.encoder.modules())
    parameters = sum(map(count_parameters, nets)) + convolutions + (module.log_std is not None)
    return why_not_compiled(module, flat, parameters)


class FusedImages:
    """A network that acts and can be learnt, see `PolicyNet`. Ask `why_not_fused_images` before.

    Args:
        module: The network.
        flat: Its parameters.
        head: What the outputs mean.
        objective: What is made of them. None: a `ClippedObjective`.
    """

    row_exact = True
    by_torch = None
    """It is compiled."""

    def __init__(
        self,
        module: ActorCritic,
        flat: FlatParameters,
        head: ActionHead,
        objective: Objective | None = None,
    ) -> None:
        self._module = module
        self._flat = flat
        self._head = head
        self._objective = objective or ClippedObjective(head)
        self._plan = plan = plan_convolutions(module.encoder, flat)  # type: ignore[arg-type]
        self._chains: list[list[FusedNet]] = []
        self._means = head.width if head.gaussian else head.outputs
        self._log_std = slice(0, 0)
        if module.log_std is not None:
            at = flat.places()[id(module.log_std)]
            self._log_std = slice(at, at + self._means)
        self._network = (plan.layers, plan.tables)
        self._local = threading.local()

    def act(self, obs: Any, noise: Floats, action: Array, logp: Floats, value: Floats) -> None:
        """Draw an action for each of n observations, see `PolicyNet.act`."""
        outputs, value[:] = self._predict(obs)
        self._objective.draw(outputs, noise, action, logp)

    def best(self, obs: Any) -> Array:
        """Return the most likely action for each observation, [n, width]."""
        return most_likely(self._head, self._predict(obs)[0])

    def values(self, obs: Any, value: Floats) -> None:
        """Write the value of each of n observations."""
        value[:] = self._predict(obs)[1]

    def evaluate_actions(self, obs: Any, action: Array, logp: Floats, value: Floats) -> None:
        """Write log-probabilities of actions, and values, see `PolicyNet.evaluate_actions`."""
        outputs, value[:] = self._predict(obs)
        write_logp(self._head, outputs, action, logp)

    def gradient(
        self,
        rollout: Rollout,
        rows: NDArray[np.int64],
        terms: Any,
        grad: Floats,
        stats: NDArray[np.float64],
    ) -> None:
        """Write the gradient of the loss over some rows, see `PolicyNet.gradient`."""
        self.gradients(rollout, rows[None], terms, grad[None], stats[None])

    def gradients(
        self,
        rollout: Rollout,
        rows: NDArray[np.int64],
        terms: Any,
        grads: Floats,
        stats: NDArray[np.float64],
    ) -> None:
        """Write the gradient of each of several slots, with the bits that `gradient` would give.

        Args:
            rollout: All rows.
            rows: [slots, rows of each].
            terms: The numbers of the loss.
            grads: [slots, size of the flat vector], is overwritten.
            stats: [slots, metrics], is overwritten.
        """
        slots, count = rows.shape
        flat_rows = np.ascontiguousarray(rows).reshape(-1)
        if len(flat_rows) and not 0 <= flat_rows.min() <= flat_rows.max() < len(rollout.logp):
            raise self._wrong(rollout, int(flat_rows.max()))
        pixels = self._pixels(rollout.obs)
        turned, image, d, sums = self._work()
        kept = aligned(len(flat_rows), self._plan.kept)
        features = np.empty((len(flat_rows), self._plan.features), np.float32)
        network = (self._flat.vector, *self._network, turned, pixels, self._plan.planes, flat_rows)
        kernels.forward(*network, image, kept, features)
        d_features = np.empty_like(features)
        stats[:] = 0
        for slot in range(slots):
            mine = slice(slot * count, (slot + 1) * count)
            d_features[mine] = self._after(
                slot, features[mine], rollout, flat_rows[mine], terms, grads[slot], stats[slot]
            )
        kernels.backward(*network, image, kept, d_features, d, sums, grads)

    def _after(
        self,
        slot: int,
        features: Floats,
        rollout: Rollout,
        rows: NDArray[np.int64],
        terms: Any,
        grad: Floats,
        stats: NDArray[np.float64],
    ) -> Floats:
        """Write the gradient of the layers after the convolutions; return that by features."""
        chain, nothing = self._chain(slot), np.zeros((len(features), 0), np.float32)
        made = features
        for net in chain:
            made = net.forward(nothing, made)
        outputs, value = self._read(made)
        d_outputs, d_value = np.empty_like(outputs), np.empty_like(value)
        wrong = self._objective.loss(
            outputs, value, rollout, rows, terms, d_outputs, d_value, stats
        )
        if wrong >= 0:
            raise self._wrong(rollout, int(rows[wrong]))
        means = d_outputs[:, : self._means]
        if self._log_std.stop:
            grad[self._log_std] = d_outputs[:, self._means :].sum(axis=0)
        if self._module.value is None:
            d_made = means.copy()
            d_made[np.arange(len(outputs)), outputs.argmax(axis=1)] += d_value
        else:
            d_made = np.concatenate([means, d_value[:, None]], axis=1)
        for net in reversed(chain):
            d_made = net.input_gradient(d_made, grad)
        return d_made

    def _predict(self, obs: Any) -> tuple[Floats, Floats]:
        pixels = self._pixels(obs)
        turned, image, _, _ = self._work()
        local = self._local.__dict__
        kept = local.get("kept")
        if kept is None:
            kept = local["kept"] = aligned(1, self._plan.kept)
        made = np.empty((len(pixels), self._plan.features), np.float32)
        network = (self._flat.vector, *self._network, turned, pixels, self._plan.planes)
        kernels.forward(*network, np.arange(len(pixels)), image, kept, made)
        nothing = np.zeros((len(pixels), 0), np.float32)
        for net in self._chain(0):
            made = net.predict(nothing, made)
        return self._read(made)

    def _read(self, made: Floats) -> tuple[Floats, Floats]:
        """Return outputs [n, K] and values [n] of what the last layers made."""
        outputs = made[:, : self._means]
        if self._log_std.stop:
            log_std = np.broadcast_to(self._flat.vector[self._log_std], outputs.shape)
            outputs = np.concatenate([outputs, log_std], axis=1)
        outputs = np.ascontiguousarray(outputs)
        if self._module.value is None:
            return outputs, outputs.max(axis=1)
        return outputs, np.ascontiguousarray(made[:, -1])

    def _pixels(self, obs: Any) -> NDArray[np.uint8]:
        """Return images as rows of bytes, where they lie."""
        images = np.ascontiguousarray(obs, np.uint8)
        rows: NDArray[np.uint8] = images.reshape(len(images), -1)
        layer = self._plan.layers[0]
        size = layer[kernels.HEIGHT] * layer[kernels.WIDTH] * layer[kernels.REAL]
        if rows.shape[1] != size:
            raise OptionError(
                f"observations of shape {images.shape} do not fit the network",
                f"it reads {size} bytes from each of {len(images)} images",
                "obs[None], if this is a single observation",
            )
        return rows

    def _chain(self, slot: int) -> list[FusedNet]:
        """Return the layers after the convolutions; each slot's keep what its way back needs."""
        module = self._module
        while len(self._chains) <= slot:
            heads: list[nn.Module] = [module.policy]
            if module.value is not None:
                heads.append(module.value)
            nets: list[list[nn.Module]] = [[module.trunk]] if len(module.trunk) else []
            chain, width = [], self._plan.features
            nets.append(heads)
            for each in nets:
                chain.append(FusedNet(self._flat, each, beside=width))
                layers = [part for part in flattened(each[0]) if isinstance(part, nn.Linear)]
                width = layers[-1].out_features
            self._chains.append(chain)
        return self._chains[slot]

    def _work(self) -> tuple[Floats, Floats, Floats, Floats]:
        """Return the arrays of this thread: weights, an image, derivatives, sums."""
        local = self._local.__dict__
        if "work" not in local:
            plan = self._plan
            local["work"] = tuple(map(aligned, (plan.turned, plan.image, plan.kept, plan.sums)))
        work: tuple[Floats, Floats, Floats, Floats] = local["work"]
        return work

    def _wrong(self, rollout: Rollout, row: int) -> OptionError:
        return OptionError(
            f"row {row} cannot be learnt from",
            f"there are {len(rollout.logp)} rows; or its action is none of {self._head}",
            "rows within the rollout, and actions as `act` wrote them",
        )
