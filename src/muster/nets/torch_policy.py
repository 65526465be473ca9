"""Any torch module as a policy: forward and backward by torch, the loss by its `Objective`.

rows -> gathered observations -> module -> outputs, value -> loss -> d_outputs, d_value
                                                                        |
flat gradient <------------------------ autograd <----------------------+

The loss is always computed on the host. If the module is on another device, each arrow between the
two is one copy, for all slots at once.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from muster.devices import Device
from muster.errors import OptionError
from muster.nets.action_head import ActionHead, no_such_action
from muster.nets.clipped_objective import ClippedObjective
from muster.nets.flat import FlatParameters
from muster.nets.gradient_target import GradientTarget
from muster.nets.policy_net import Array, Floats, Objective, Rollout
from muster.rl_utils.losses.given_actions import logp_of_actions
from muster.rl_utils.losses.ppo import best_actions


class SlotGradients(ABC):
    """The gradients of several slots, with one copy to and from a device for all of them."""

    _device: Device

    def gradient(
        self,
        rollout: Rollout,
        rows: NDArray[np.int64],
        terms: Any,
        grad: Any,
        stats: NDArray[np.float64],
    ) -> None:
        """Write the gradient of the loss over some rows (see `PolicyNet`).

        Args:
            rollout: All rows.
            rows: The rows to use; for a recurrent network, the sequences.
            terms: The coefficients of the loss.
            grad: As long as the flat vector; overwritten. An array, or a tensor on the device.
            stats: One sum for each of the objective's metrics, overwritten.
        """
        self.write_gradients(rollout, (rows,), terms, (grad,), (stats,))

    def gradients(
        self, rollout: Rollout, rows: Array, terms: Any, out: Array, stats: Array
    ) -> None:
        """Write the gradients of several slots, each bitwise equal to the result of `gradient`."""
        if not self._device.is_host:
            self.write_gradients(rollout, rows, terms, out, stats)
            return
        # One after another, so that each is still in the caches for its backward pass.
        for mine, grad, sums in zip(rows, out, stats, strict=True):
            self.write_gradients(rollout, (mine,), terms, (grad,), (sums,))

    @abstractmethod
    def write_gradients(
        self, rollout: Rollout, rows: Any, terms: Any, grads: Any, stats: Any
    ) -> None:
        """Like `gradient`, for each of several slots, with one forward pass per slot."""


class TorchPolicy(SlotGradients):
    """A module run by torch and autograd; implements `PolicyNet`.

    Both acting and learning use evaluation mode: PPO, for instance, divides the current probability
    of an action by that when it was sampled, and dropout or batch norm over another batch would
    look like a step of the policy.

    Args:
        module: Maps observations to (outputs [B, K], value [B] or [B, 1]).
        flat: The parameters of `module`.
        head: How the outputs are interpreted.
        objective: Turns outputs into actions and a loss. None: a `ClippedObjective`.
        channels_last: Convolve with the channels innermost (Conv2d only). On a CPU this takes two
            thirds of the time, and the images of most environments already have this layout.
        bf16: Convolve in bfloat16, also when acting, or the first ratios would be off by more than
            rounding. Everything else, and the gradient of every weight, is float32. For processors
            with instructions for it (avx512_bf16, amx_bf16): others take three times as long with
            it, or more.
        compiled: Run the module through torch.compile. It needs a C++ compiler, takes 15 to 45
            seconds at the first gradient and more for each other number of rows, and does not speed
            up muster's CNNs: use it for long runs of networks with many small layers.
        why: The reason why the compiled path is not used.
    """

    row_exact = False

    def __init__(
        self,
        module: nn.Module,
        flat: FlatParameters,
        head: ActionHead,
        objective: Objective | None = None,
        *,
        channels_last: bool = True,
        bf16: bool = False,
        compiled: bool = False,
        why: str = "it was requested",
    ) -> None:
        self.by_torch = why
        """The reason why the network is not compiled."""
        self._module = module.eval()
        self._device = flat.device
        self._head = head
        self._objective = objective or ClippedObjective(head)
        self._gradient = FlatGradient(module, flat, head, self._objective)
        self._convolutions = Convolutions(channels_last, bf16) if has_convolutions(module) else None
        self._forward: Any = torch.compile(module) if compiled else module

    def act(self, obs: Any, noise: Floats, action: Array, logp: Floats, value: Floats) -> None:
        """Sample an action for each of n observations (see `PolicyNet`)."""
        outputs, values = self._predict(obs)
        self._objective.draw(outputs, noise, action, logp)
        value[:] = values

    def act_groups(self, groups: Sequence[tuple[Any, ...]]) -> None:
        """Like `act`, for several groups of environments, each with the bits of a separate call.

        All groups together need one copy to the device, and one back.

        Args:
            groups: The arguments of `act`, for each group.
        """
        if self._device.is_host:
            for group in groups:
                self.act(*group)
            return
        made = self._predict_all([group[0] for group in groups])
        for (outputs, values), (_, noise, action, logp, value) in zip(made, groups, strict=True):
            self._objective.draw(outputs, noise, action, logp)
            value[:] = values

    def best(self, obs: Any) -> Array:
        """Return the most likely action for each observation, [n, width]."""
        outputs, _ = self._predict(obs)
        return most_likely(self._head, outputs)

    def values(self, obs: Any, value: Floats) -> None:
        """Write the value of each of n observations."""
        value[:] = self._predict(obs)[1]

    def evaluate_actions(self, obs: Any, action: Array, logp: Floats, value: Floats) -> None:
        """Write log-probabilities of actions, and values (see `PolicyNet`)."""
        outputs, value[:] = self._predict(obs)
        write_logp(self._head, outputs, action, logp)

    def write_gradients(
        self, rollout: Rollout, rows: Any, terms: Any, grads: Any, stats: Any
    ) -> None:
        """Like `gradient`, for each of several slots, with one forward pass per slot."""
        obs = self._device.stage(tuple(gather(rollout.obs, mine) for mine in rows), own=True)
        with torch.enable_grad():
            made = [self._run(each) for each in obs]
        self._gradient.write(made, rollout, rows, terms, grads, stats)

    def _predict(self, obs: Any) -> tuple[Floats, Floats]:
        with torch.no_grad():
            outputs, value = self._run(self._device.stage(obs, own=True))
        found = self._device.fetch(outputs, value)
        return found[0], found[1]

    def _predict_all(self, groups: Sequence[Any]) -> list[tuple[Floats, Floats]]:
        with torch.no_grad():
            made = [self._run(obs) for obs in self._device.stage(tuple(groups), own=True)]
        found = self._device.fetch(*(tensor for pair in made for tensor in pair))
        return list(zip(found[::2], found[1::2], strict=True))

    def _run(self, obs: Any) -> tuple[Tensor, Tensor]:
        if self._module.training:
            self._module.eval()
        with self._convolutions or nullcontext():
            outputs, value = self._forward(obs)
        # Contiguous, because the loss reads rows; a module may return a slice or a transpose.
        return outputs.float().contiguous(), value.float().reshape(-1)


class FlatGradient:
    """The gradient of a loss, by autograd, in one vector for all parameters.

    Args:
        module: The module with the parameters.
        flat: The same parameters as one vector.
        head: How the outputs are interpreted.
        objective: Provides the loss.
    """

    def __init__(
        self, module: nn.Module, flat: FlatParameters, head: ActionHead, objective: Objective
    ) -> None:
        self._target = GradientTarget(module, flat)
        self._flat = flat
        self._head = head
        self._objective = objective

    def write(
        self,
        made: Sequence[tuple[Tensor, Tensor]],
        rollout: Rollout,
        rows: Sequence[NDArray[np.int64]],
        terms: Any,
        grads: Any,
        stats: Sequence[NDArray[np.float64]],
    ) -> None:
        """Overwrite gradients and metrics of several slots.

        Args:
            made: Outputs [B, K] and values [B] of B rows, for each slot.
            rollout: All rows.
            rows: The B rows of each slot.
            terms: The coefficients of the loss.
            grads: A flat vector for each slot.
            stats: One sum for each of the objective's metrics, for each slot.
        """
        device = self._flat.device
        found = device.fetch(*(tensor for pair in made for tensor in pair))
        derivatives: tuple[Any, ...] = ()
        for slot, (mine, sums) in enumerate(zip(rows, stats, strict=True)):
            outputs, value = found[2 * slot : 2 * slot + 2]
            derivatives += self._derivatives(outputs, value, rollout, mine, terms, sums)
        there = device.stage(derivatives)
        to_host = not device.is_host and isinstance(grads[0], np.ndarray)
        into = [self._flat.new_gradient() for _ in made] if to_host else grads
        for slot, pair in enumerate(made):
            self._target.write(pair, there[2 * slot : 2 * slot + 2], into[slot])
        if to_host:
            for grad, values in zip(grads, device.fetch(*into), strict=True):
                grad[:] = values

    def _derivatives(
        self,
        outputs: Floats,
        value: Floats,
        rollout: Rollout,
        rows: NDArray[np.int64],
        terms: Any,
        stats: NDArray[np.float64],
    ) -> tuple[Floats, Floats]:
        """Return the derivatives of the loss w.r.t. outputs and values, and overwrite `stats`."""
        d_outputs, d_value = np.empty_like(outputs), np.empty_like(value)
        stats[:] = 0
        wrong = self._objective.loss(
            outputs, value, rollout, rows, terms, d_outputs, d_value, stats
        )
        if wrong >= 0:
            raise OptionError(
                f"row {rows[wrong]} of {len(rollout.logp)} does not exist, or its action does not",
                f"rows begin at 0, and so do categories; of these there are {self._head.sizes}",
                "rows=np.arange(len(rollout.logp))",
            )
        return d_outputs, d_value


class Convolutions(TorchFunctionMode):
    """Within this mode, conv2d has its channels innermost, or computes in bfloat16, or both.

    The weights stay in the flat vector, in float32 and in torch's usual order. Unlike
    `torch.autocast`, this leaves the Linear layers in float32: in bfloat16 a value of 100 would
    only be known to the nearest half.

    Args:
        channels_last: Whether channels are innermost.
        bf16: Whether to compute in bfloat16; the output is float32.
    """

    def __init__(self, channels_last: bool, bf16: bool) -> None:
        super().__init__()
        self._channels_last = channels_last
        self._bf16 = bf16

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Call `func`, or its faster form."""
        if func is not torch.conv2d:
            return func(*args, **(kwargs or {}))
        image, *rest = args
        if self._channels_last and image.dim() == 4:
            image = image.contiguous(memory_format=torch.channels_last)
        if not self._bf16:
            return func(image, *rest, **(kwargs or {}))
        rest = [x.bfloat16() if isinstance(x, Tensor) else x for x in rest]
        kwargs = {
            k: x.bfloat16() if isinstance(x, Tensor) else x for k, x in (kwargs or {}).items()
        }
        return func(image.bfloat16(), *rest, **kwargs).float()


def most_likely(head: ActionHead, outputs: Floats) -> Array:
    """Return the most likely action [n, width] for each row of outputs [n, K]."""
    action = np.empty((len(outputs), head.width), head.dtype)
    best_actions(outputs, head.gaussian, np.array(head.sizes, np.int64), action)
    return action


def write_logp(head: ActionHead, outputs: Floats, action: Array, logp: Floats) -> None:
    """Write the log-probability [n] of actions [n, width] under outputs [n, K]."""
    bad = logp_of_actions(outputs, action, head.gaussian, np.array(head.sizes, np.int64), logp)
    if bad >= 0:
        raise no_such_action(action[bad], head)


def has_convolutions(module: nn.Module) -> bool:
    """Whether any part of a module is a Conv2d."""
    return any(isinstance(part, nn.Conv2d) for part in module.modules())


def gather(obs: Any, rows: NDArray[np.int64]) -> Any:
    """Return some rows of observations (an array, or a dict of them)."""
    if isinstance(obs, Mapping):
        return {key: gather(part, rows) for key, part in obs.items()}
    return np.take(obs, rows, axis=0)
