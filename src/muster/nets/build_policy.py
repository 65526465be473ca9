"""Builds the network of a policy, and the fastest way to run it.

obs_space, head -> build_policy -> module -> FlatParameters -> make_policy_net -> act, gradient
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import torch
from torch import Tensor, nn

from muster.devices import as_tensors
from muster.envs.masks import is_masked
from muster.nets.action_head import ActionHead
from muster.nets.actor_critic import ActorCritic
from muster.nets.conv_plan import why_no_convolutions
from muster.nets.errors import ModelError
from muster.nets.flat import FlatParameters
from muster.nets.fused_images import FusedImages, split_images, why_not_fused_images
from muster.nets.fused_policy import FusedPolicy, why_not_fused
from muster.nets.fused_recurrent import FusedRecurrent, why_not_fused_recurrent
from muster.nets.masking import MaskedModel
from muster.nets.normalizer import ObsNorm
from muster.nets.own_model import built, global_generator_seeded, refuse_two_modes, two_of
from muster.nets.policy_net import Objective, PolicyNet
from muster.nets.recurrent import RecurrentActorCritic, RecurrentPolicy
from muster.nets.registry import REMEMBERS, Factory, get_model, is_built_in
from muster.nets.residual import check_image, is_residual, residual_encoder
from muster.nets.threads import one_torch_thread
from muster.nets.torch_policy import TorchPolicy


def build_policy(
    obs_space: gym.Space[Any],
    head: ActionHead,
    hidden: Sequence[int] = (64, 64),
    shared: bool = False,
    activation: str = "tanh",
    normalize_obs: bool = False,
    log_std: float = 0.0,
    model: str | Factory | None = None,
    *,
    layer_norm: bool = False,
    critic: bool = True,
    seed: int = 0,
) -> nn.Module:
    """Return a module from observations [B, ...] to (outputs [B, head.outputs], values [B]).

    Args:
        obs_space: Space of one observation, of any kind that `make_encoder` supports.
        head: How the outputs are interpreted.
        hidden: Width of each layer after the encoder.
        shared: Share the hidden layers between actions and value; otherwise each has its own.
        activation: "relu", "tanh", "gelu" or "silu", after each hidden layer.
        normalize_obs: Put an `ObsNorm` in front, as `module.normalizer`.
        log_std: Initial log_std of a Gaussian.
        model: Another network:
            "mlp": as None.
            "nature_cnn": images by three convolutions, then one shared layer of 512.
            "impala_cnn": images by fifteen convolutions, then one shared layer of 256.
            "resnet8", "resnet20", ...: images by 6n + 1 convolutions, then the same layer.
            "lstm", "gru": a `RecurrentActorCritic`; the last of `hidden` is the recurrent layer.
            Or a registered name, or a class or function of (obs_space, head.outputs), that replaces
            everything except `normalize_obs`. A Gaussian's outputs are means, then log_std.
        layer_norm: Put a LayerNorm before each activation of the layers after the encoder.
        critic: Whether the value has its own head; your own model then returns both. Otherwise the
            value is the best output.
        seed: Determines the initial weights; torch's global generator is neither used nor changed.
    """
    if model is None or (isinstance(model, str) and is_built_in(model)):
        with one_torch_thread():  # orthogonal weights involve a matrix product, too
            module = _standard(
                model or "mlp",
                obs_space,
                head,
                tuple(hidden),
                shared,
                activation,
                normalize_obs,
                log_std,
                torch.Generator().manual_seed(seed),
                layer_norm,
                critic,
            )
        _try(module, obs_space, head)
        return module
    with global_generator_seeded(seed), one_torch_thread():
        own = built(get_model(model), obs_space, head.outputs)
        module = MaskedModel(own) if is_masked(obs_space) else own
        module = module if critic else BestOutput(module)
        if normalize_obs:
            module = Normalized(ObsNorm(obs_space), module)
        _try(module, obs_space, head)  # also determines the sizes of lazy layers
        refuse_two_modes(own, lambda net: _tensors(net(as_tensors(two_of(obs_space)))))
    return module


def make_policy_net(
    module: nn.Module,
    flat: FlatParameters,
    head: ActionHead,
    objective: Objective | None = None,
    **options: Any,
) -> PolicyNet | RecurrentPolicy | FusedRecurrent:
    """Return the fastest way to run a policy: compiled if possible, otherwise by torch.

    Args:
        module: From `build_policy`, or any module from observations to (outputs, value).
        flat: The parameters of `module`.
        head: How the outputs are interpreted.
        objective: Turns outputs into actions and a loss. None: a `ClippedObjective`.
        options: For policies that torch runs: see `TorchPolicy`, `RecurrentPolicy`.
    """
    asked = "torch.compile was requested" if options.get("compiled") else None
    bf16 = "bfloat16 was requested" if options.get("bf16") else None
    if isinstance(module, RecurrentActorCritic):
        why = asked or why_not_fused_recurrent(module, flat)
        if why is not None:
            return RecurrentPolicy(module, flat, head, objective, why=why, **options)
        return FusedRecurrent(module, flat, head, objective)
    split = split_images(module)
    if split is not None and why_no_convolutions(split[0]) is None:
        why = asked or bf16 or why_not_fused_images(module, flat)
        if why is None:
            return FusedImages(module, flat, head, objective)
        return TorchPolicy(module, flat, head, objective, why=why, **options)
    why = asked or why_not_fused(module, flat, objective)
    if why is not None or not isinstance(module, ActorCritic):
        return TorchPolicy(module, flat, head, objective, why=str(why), **options)
    return FusedPolicy(module, flat, head, objective)


class Normalized(nn.Module):
    """Your own model behind an `ObsNorm`.

    Args:
        normalizer: Normalises the observations.
        model: Receives them in their original shapes.
    """

    def __init__(self, normalizer: ObsNorm, model: nn.Module) -> None:
        super().__init__()
        self.normalizer = normalizer
        self.model = model

    def forward(self, obs: Any) -> Any:
        """Return the model's result for the normalised observations."""
        return self.model(_shaped_as(obs, self.normalizer(obs)))


class BestOutput(nn.Module):
    """Your own model with outputs only: the value is the best output.

    Args:
        model: Maps observations to outputs [B, K].
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, obs: Any) -> tuple[Any, Any]:
        """Return the outputs, and the best of each row."""
        outputs = self.model(obs)
        if not isinstance(outputs, Tensor) or outputs.dim() != 2:
            raise ModelError(
                f"the model returns {_described(outputs)} for {_rows_of(obs)} observations",
                "a Q-network has one output per action, and rows are observations",
                "return q, of shape [observations, actions]",
            )
        return outputs, outputs.amax(1)


def _rows_of(obs: Any) -> int:
    return _rows_of(next(iter(obs.values()))) if isinstance(obs, Mapping) else len(obs)


def _tensors(made: Any) -> Any:
    return made if isinstance(made, Tensor) else tuple(made)


def _shaped_as(obs: Any, flat: Any) -> Any:
    if isinstance(obs, Mapping):
        return {key: _shaped_as(part, flat[key]) for key, part in obs.items()}
    return flat.reshape(obs.shape)


def _standard(
    model: str,
    obs_space: gym.Space[Any],
    head: ActionHead,
    hidden: tuple[int, ...],
    shared: bool,
    activation: str,
    normalize_obs: bool,
    log_std: float,
    generator: torch.Generator,
    layer_norm: bool,
    critic: bool,
) -> nn.Module:
    more: dict[str, Any] = {
        "log_std": log_std,
        "generator": generator,
        "layer_norm": layer_norm,
        "critic": critic,
    }
    if model in REMEMBERS:
        more["cell"] = model
        return RecurrentActorCritic(obs_space, head, hidden, activation, normalize_obs, **more)
    if is_residual(model):
        encoder = residual_encoder(model, obs_space, generator)
        width = int(encoder.out_features)  # type: ignore[arg-type]  # every encoder has it
        features = gym.spaces.Box(-float("inf"), float("inf"), (width,))
        # The encoder keeps its own initialisation: orthogonal weights make the contributions of
        # residual blocks too large, and each block would double the variance.
        top = ActorCritic(features, head, (256,), True, "relu", **more)
        whole: nn.Module = nn.Sequential(OrderedDict(encoder=encoder, top=top))
        if is_masked(obs_space):
            whole = MaskedModel(whole, value_is_best=not critic)
        return Normalized(ObsNorm(obs_space), whole) if normalize_obs else whole
    if model == "nature_cnn":
        hidden, shared, activation = (512,), True, "relu"
    module = ActorCritic(obs_space, head, hidden, shared, activation, normalize_obs, **more)
    if model == "nature_cnn":
        check_image(model, obs_space, module.encoder)
    return module


def _try(module: nn.Module, obs_space: gym.Space[Any], head: ActionHead) -> None:
    """Raise ModelError unless a module returns outputs and values for two observations."""
    obs = as_tensors(two_of(obs_space))
    training = module.training
    module.eval()  # or batch norm would include these two in its statistics
    with torch.no_grad():
        made = module(obs)
    module.train(training)
    wanted = (2, head.outputs)
    if not (isinstance(made, tuple | list) and len(made) == 2):
        raise ModelError(
            f"the model returns {_described(made)} for two observations, not a pair",
            "a policy returns outputs for the actions and a value for each observation",
            "return outputs, value",
        )
    outputs, value = made
    if not _is_floats(outputs, wanted):
        kind = "means and as many log_std" if head.gaussian else "logits"
        raise ModelError(
            f"the model's outputs for two observations are {_described(outputs)}, not floats of "
            f"shape {wanted}",
            f"for these actions they are {head.outputs} {kind}, and rows are observations",
            f"end it with torch.nn.Linear(..., {head.outputs})",
        )
    if not (_is_floats(value, (2,)) or _is_floats(value, (2, 1))):
        raise ModelError(
            f"the model's values of two observations are {_described(value)}, not floats of "
            "shape (2,) or (2, 1)",
            "an observation has one value",
            "compute it with torch.nn.Linear(..., 1)",
        )


def _is_floats(made: Any, shape: tuple[int, ...]) -> bool:
    return isinstance(made, Tensor) and made.is_floating_point() and tuple(made.shape) == shape


def _described(made: Any) -> str:
    if isinstance(made, Tensor):
        return f"a tensor of shape {tuple(made.shape)} and {made.dtype}"
    return f"{made!r:.200}"
