"""Any torch module as a policy: forward and backward by torch, the loss by its `Objective`.

rows -> gathered observations -> module -> outputs, value -> loss -> d_outputs, d_value
                                                                        |
flat gradient <------------------------ autograd <----------------------+
"""

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from muster.errors import OptionError
from muster.nets.action_head import ActionHead, no_such_action
from muster.nets.clipped_objective import ClippedObjective
from muster.nets.flat import FlatParameters
from muster.nets.policy_net import Array, Floats, Objective, Rollout
from muster.nets.q_network import as_tensors
from muster.rl_utils.losses.given_actions import logp_of_actions
from muster.rl_utils.losses.ppo import best_actions


class TorchPolicy:
    """A module run by torch and autograd, with the face of `PolicyNet`.

    Acting and learning are both in evaluation mode: PPO for one divides the probability of an
    action now by that when it was drawn, and dropout or the batch norm of another batch would be
    taken for a step of the policy.

    Args:
        module: From observations to (outputs [B, K], value [B] or [B, 1]).
        flat: Its parameters.
        head: What the outputs mean.
        objective: What is made of them. None: a `ClippedObjective`.
        channels_last: Convolve with the channels innermost (Conv2d alone). On a CPU this takes two
            thirds of the time, and the images of most environments lie so already.
        bf16: Convolve in bfloat16, when acting as well, or the first ratios would be off by more
            than rounding. All the rest, and the gradient of every weight, is float32. It is for
            processors with instructions for it (avx512_bf16, amx_bf16): others take three times as
            long with it, or more.
        compiled: Run the module through torch.compile. That needs a C++ compiler, takes 15 to 45
            seconds at the first gradient and some more for each other number of rows, and the CNNs
            of muster are no faster by it: it is for long runs of networks of many small layers.
        why: What keeps it from the compiled path.
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
        why: str = "it was asked for",
    ) -> None:
        self.by_torch = why
        """Why it is not compiled."""
        self._module = module.eval()
        self._head = head
        self._objective = objective or ClippedObjective(head)
        self._gradient = FlatGradient(module, flat, head, self._objective)
        self._convolutions = Convolutions(channels_last, bf16) if has_convolutions(module) else None
        self._forward: Any = torch.compile(module) if compiled else module

    def act(self, obs: Any, noise: Floats, action: Array, logp: Floats, value: Floats) -> None:
        """Draw an action for each of n observations (see `PolicyNet`)."""
        outputs, values = self._predict(obs)
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

    def gradient(
        self,
        rollout: Rollout,
        rows: NDArray[np.int64],
        terms: Any,
        grad: Floats,
        stats: NDArray[np.float64],
    ) -> None:
        """Write the gradient of the loss over some rows (see `PolicyNet`)."""
        with torch.enable_grad():
            outputs, value = self._run(gather(rollout.obs, rows))
        self._gradient.write(outputs, value, rollout, rows, terms, grad, stats)

    def _predict(self, obs: Any) -> tuple[Floats, Floats]:
        with torch.no_grad():
            outputs, value = self._run(own_tensors(obs))
        return outputs.numpy(), value.numpy()

    def _run(self, obs: Any) -> tuple[Tensor, Tensor]:
        if self._module.training:
            self._module.eval()
        with self._convolutions or nullcontext():
            outputs, value = self._forward(obs)
        # Contiguous, because the loss reads rows; a module may return a slice or a transpose.
        return outputs.float().contiguous(), value.float().reshape(-1)


class FlatGradient:
    """The gradient of a loss, by autograd, into one vector for all parameters.

    Args:
        module: Whose parameters.
        flat: The same as one vector.
        head: What the module's outputs mean.
        objective: Whose loss.
    """

    def __init__(
        self, module: nn.Module, flat: FlatParameters, head: ActionHead, objective: Objective
    ) -> None:
        named = module.named_parameters()
        self._pieces = [(parameter, flat.names_and_slices[name]) for name, parameter in named]
        self._head = head
        self._objective = objective

    def write(
        self,
        outputs: Tensor,
        value: Tensor,
        rollout: Rollout,
        rows: NDArray[np.int64],
        terms: Any,
        grad: Floats,
        stats: NDArray[np.float64],
    ) -> None:
        """Overwrite `grad` and `stats` with those of outputs [B, K] and value [B] of B rows."""
        made, worth = outputs.detach().numpy(), value.detach().numpy()
        d_outputs, d_value = np.empty_like(made), np.empty_like(worth)
        stats[:] = 0
        wrong = self._objective.loss(made, worth, rollout, rows, terms, d_outputs, d_value, stats)
        if wrong >= 0:
            raise OptionError(
                f"row {rows[wrong]} of {len(rollout.logp)} does not exist, or its action does not",
                f"rows begin at 0, and so do categories; of these there are {self._head.sizes}",
                "rows=np.arange(len(rollout.logp))",
            )
        # Autograd adds to a gradient that is there: so it writes into the flat vector itself.
        grad[:] = 0
        for parameter, piece in self._pieces:
            parameter.grad = torch.from_numpy(grad[piece]).view(parameter.shape)
        torch.autograd.backward(
            [outputs, value], [torch.from_numpy(d_outputs), torch.from_numpy(d_value)]
        )
        for parameter, _ in self._pieces:
            parameter.grad = None  # shared memory that is still referred to cannot be closed


class Convolutions(TorchFunctionMode):
    """Within it, conv2d has its channels innermost, or computes in bfloat16, or both.

    The weights stay where they are, in the flat vector, float32 and in torch's usual order. This is
    no `torch.autocast`, which has the Linear layers in bfloat16 as well: a value of 100 would then
    be known to the nearest half.

    Args:
        channels_last: Innermost channels.
        bf16: In bfloat16; what comes out is float32.
    """

    def __init__(self, channels_last: bool, bf16: bool) -> None:
        super().__init__()
        self._channels_last = channels_last
        self._bf16 = bf16

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Call `func`, or the faster form of it."""
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
    """Return some rows of observations (an array, or a dict of them) as tensors."""
    if isinstance(obs, Mapping):
        return {key: gather(part, rows) for key, part in obs.items()}
    return own_tensors(np.take(obs, rows, axis=0))


def own_tensors(obs: Any) -> Any:
    """Return observations as tensors, those of floats in memory that torch aligned.

    NumPy's begins where it happens to, and a BLAS may add in another order there. (MKL was not
    seen to; it promises the same bits for aligned memory only.)
    """
    if isinstance(obs, Mapping):
        return {key: own_tensors(part) for key, part in obs.items()}
    tensor: Tensor = as_tensors(obs)
    return tensor.clone() if tensor.is_floating_point() else tensor
