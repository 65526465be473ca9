"""A policy that reads images without torch: convolutions and layers as compiled calls.

    images -> convolutions (conv_kernels) -> layers, heads (FusedNet) -> loss -> the same way back

    why_not_fused_images  the rule for which networks are supported
    FusedImages           implements `PolicyNet`, and `gradients` of several slots at once

The bits of an image do not depend on the images beside it, so all environments of a worker act in
one call. Only the gradient of the weights is summed slot by slot.
"""

import threading
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import nn

from muster.errors import OptionError
from muster.nets import conv_kernels as kernels
from muster.nets.action_head import ActionHead
from muster.nets.actor_critic import ActorCritic
from muster.nets.clipped_objective import ClippedObjective
from muster.nets.conv_plan import plan_convolutions, why_no_convolutions
from muster.nets.encoders import Flatten
from muster.nets.flat import FlatParameters, aligned
from muster.nets.fused_net import FusedNet
from muster.nets.fused_plan import count_parameters, flattened, why_no_chain, why_not_compiled
from muster.nets.impala_cnn import ImpalaCNN
from muster.nets.policy_net import Array, Floats, Objective, Rollout
from muster.nets.torch_policy import most_likely, write_logp


class _Work(NamedTuple):
    """The arrays that the kernels write, see `conv_kernels`."""

    turned: Floats
    scratch: Floats
    d: Floats
    sums: Floats
    kept: Floats
    """[images, room]."""
    chosen: NDArray[np.uint8]
    """[images, choices of pools]."""


def why_not_fused_images(module: nn.Module, flat: FlatParameters) -> str | None:
    """Return why a network that reads images cannot use the compiled path, or None if it can.

    The rule: the module is an `ActorCritic`, with its own encoder or behind one. The encoder reads
    uint8 images and passes `why_no_convolutions`, the layers pass `why_no_chain`, and every
    parameter is learnt and used once.
    """
    split = split_images(module)
    if split is None:
        return f"{type(module).__name__} is not the standard ActorCritic"
    encoder, top = split
    reason = why_no_convolutions(encoder)
    if reason is not None:
        return reason
    if isinstance(encoder, ImpalaCNN):  # until the cause is known
        return "compiled, two workers may learn a different policy from one worker (docs/ppo.md)"
    if top.normalizer is not None:
        return "images are normalised"
    nets = [list(flattened(net)) for net in (top.trunk, top.policy, top.value) if net]
    for net in nets:
        reason = why_no_chain(net)
        if reason is not None:
            return reason
    convolutions = 2 * sum(isinstance(part, nn.Conv2d) for part in encoder.modules())
    parameters = sum(map(count_parameters, nets)) + convolutions + (top.log_std is not None)
    return why_not_compiled(module, flat, parameters)


def split_images(module: nn.Module) -> tuple[nn.Module, ActorCritic] | None:
    """Return the encoder of images and the part after it; None for any other structure."""
    if type(module) is ActorCritic:
        return module.encoder, module
    parts = dict(module.named_children()) if type(module) is nn.Sequential else {}
    top = parts.get("top")
    if parts.keys() == {"encoder", "top"} and type(top) is ActorCritic:
        return (parts["encoder"], top) if type(top.encoder) is Flatten else None
    return None


class FusedImages:
    """A network that acts and learns, see `PolicyNet`. Call `why_not_fused_images` first.

    Args:
        module: The network.
        flat: The parameters of `module`.
        head: How the outputs are interpreted.
        objective: Turns outputs into actions and a loss. None: a `ClippedObjective`.
    """

    row_exact = True
    by_torch = None
    """The network is compiled."""

    def __init__(
        self,
        module: nn.Module,
        flat: FlatParameters,
        head: ActionHead,
        objective: Objective | None = None,
    ) -> None:
        encoder, self._top = split_images(module)  # type: ignore[misc]
        self._flat = flat
        self._head = head
        self._objective = objective or ClippedObjective(head)
        self._plan = plan = plan_convolutions(encoder, flat)  # type: ignore[arg-type]
        self._chain = self._layers()
        self._means = head.width if head.gaussian else head.outputs
        self._log_std = slice(0, 0)
        if self._top.log_std is not None:
            at = flat.places()[id(self._top.log_std)]
            self._log_std = slice(at, at + self._means)
        self._network = (plan.steps, plan.tables)
        self._local = threading.local()

    def act(self, obs: Any, noise: Floats, action: Array, logp: Floats, value: Floats) -> None:
        """Sample an action for each of n observations, see `PolicyNet.act`."""
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
        """Write the gradient of each of several slots, bitwise equal to the result of `gradient`.

        Args:
            rollout: All rows.
            rows: [slots, rows of each].
            terms: The coefficients of the loss.
            grads: [slots, size of the flat vector], overwritten.
            stats: [slots, metrics], overwritten.
        """
        slots, count = rows.shape
        flat_rows = np.ascontiguousarray(rows).reshape(-1)
        if len(flat_rows) and not 0 <= flat_rows.min() <= flat_rows.max() < len(rollout.logp):
            raise self._wrong(rollout, int(flat_rows.max()))
        pixels = self._pixels(rollout.obs)
        features = np.empty((count, self._plan.features), np.float32)
        stats[:] = 0
        for slot in range(slots):
            mine = flat_rows[slot * count : (slot + 1) * count]
            work = self._work(count)
            network = (self._flat.vector, *self._network, work.turned, pixels, self._plan.planes)
            room = (mine, work.scratch, work.kept, work.chosen)
            kernels.forward(*network, *room, features)
            d_features = self._after(features, rollout, mine, terms, grads[slot], stats[slot])
            kernels.backward(*network, *room, d_features, work.d, work.sums, grads[slot])

    def _after(
        self,
        features: Floats,
        rollout: Rollout,
        rows: NDArray[np.int64],
        terms: Any,
        grad: Floats,
        stats: NDArray[np.float64],
    ) -> Floats:
        """Write the gradient of the layers after the convolutions; return that w.r.t. features."""
        nothing = np.zeros((len(features), 0), np.float32)
        made = features
        for net in self._chain:
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
        if self._top.value is None:
            d_made = means.copy()
            d_made[np.arange(len(outputs)), outputs.argmax(axis=1)] += d_value
        else:
            d_made = np.concatenate([means, d_value[:, None]], axis=1)
        for net in reversed(self._chain):
            d_made = net.input_gradient(d_made, grad)
        return d_made

    def _predict(self, obs: Any) -> tuple[Floats, Floats]:
        pixels = self._pixels(obs)
        work = self._work(1)
        made = np.empty((len(pixels), self._plan.features), np.float32)
        network = (self._flat.vector, *self._network, work.turned, pixels, self._plan.planes)
        kernels.forward(
            *network, np.arange(len(pixels)), work.scratch, work.kept, work.chosen, made
        )
        nothing = np.zeros((len(pixels), 0), np.float32)
        for net in self._chain:
            made = net.predict(nothing, made)
        return self._read(made)

    def _read(self, made: Floats) -> tuple[Floats, Floats]:
        """Return outputs [n, K] and values [n] from the result of the last layers."""
        outputs = made[:, : self._means]
        if self._log_std.stop:
            log_std = np.broadcast_to(self._flat.vector[self._log_std], outputs.shape)
            outputs = np.concatenate([outputs, log_std], axis=1)
        outputs = np.ascontiguousarray(outputs)
        if self._top.value is None:
            return outputs, outputs.max(axis=1)
        return outputs, np.ascontiguousarray(made[:, -1])

    def _pixels(self, obs: Any) -> NDArray[np.uint8]:
        """Return images as rows of bytes, without copying if possible."""
        images = np.ascontiguousarray(obs, np.uint8)
        rows: NDArray[np.uint8] = images.reshape(len(images), -1)
        first = self._plan.steps[0]
        size = first[kernels.HEIGHT] * first[kernels.WIDTH] * first[kernels.CHANNELS]
        if rows.shape[1] != size:
            raise OptionError(
                f"observations of shape {images.shape} do not fit the network",
                f"it reads {size} bytes from each of {len(images)} images",
                "obs[None], if this is a single observation",
            )
        return rows

    def _layers(self) -> list[FusedNet]:
        """Return the layers after the convolutions: the shared ones, then the heads."""
        top = self._top
        nets: list[list[nn.Module]] = [[top.trunk]] if len(top.trunk) else []
        nets.append([top.policy] if top.value is None else [top.policy, top.value])
        chain, width = [], self._plan.features
        for each in nets:
            chain.append(FusedNet(self._flat, each, beside=width))
            layers = [part for part in flattened(each[0]) if isinstance(part, nn.Linear)]
            width = layers[-1].out_features
        return chain

    def _work(self, images: int) -> "_Work":
        """Return this thread's arrays for forward and backward passes with this many images."""
        plan, local = self._plan, self._local.__dict__
        if "work" not in local:
            local["work"] = _Work(
                aligned(plan.turned),
                aligned(plan.scratch),
                aligned(plan.kept + plan.scratch),
                aligned(plan.sums),
                aligned(images, plan.kept),
                np.zeros((images, plan.chosen), np.uint8),
            )
        work: _Work = local["work"]
        if images > len(work.kept):
            kept = aligned(images, plan.kept)
            chosen = np.zeros((images, plan.chosen), np.uint8)
            work = local["work"] = work._replace(kept=kept, chosen=chosen)
        return work._replace(kept=work.kept[:images], chosen=work.chosen[:images])

    def _wrong(self, rollout: Rollout, row: int) -> OptionError:
        return OptionError(
            f"row {row} cannot be learnt from",
            f"there are {len(rollout.logp)} rows; or its action is not one of {self._head}",
            "rows within the rollout, and actions as `act` wrote them",
        )
