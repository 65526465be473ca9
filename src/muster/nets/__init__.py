"""Networks: torch modules, their weights as one vector, and fast ways to run the small ones.

obs_space, n_actions -> build_q_network -> module -> FlatParameters -> make_net -> q, gradient
                                                           |                          |
                                                           +----------- Adam <--------+

Importing this package does not load torch: `registry` knows the names of networks without it.
"""

from typing import TYPE_CHECKING

from muster.lazy import load_when_asked_for

if TYPE_CHECKING:
    from muster.nets.action_head import ActionHead
    from muster.nets.actor_critic import ActorCritic
    from muster.nets.adam import Adam, DeviceAdam, make_adam
    from muster.nets.build_policy import make_policy_net
    from muster.nets.cnn import NatureCNN
    from muster.nets.encoders import DictEncoder, Flatten, OneHot, make_encoder
    from muster.nets.errors import ModelError, NonFiniteError
    from muster.nets.flat import FlatParameters
    from muster.nets.fused_net import FusedNet
    from muster.nets.impala_cnn import ImpalaCNN
    from muster.nets.mlp import MLP, DuelingHead
    from muster.nets.normalizer import ObsNorm
    from muster.nets.q_network import build_q_network
    from muster.nets.recurrent import RecurrentActorCritic, RecurrentPolicy
    from muster.nets.registry import get_model, register_model
    from muster.nets.resnet import ResNet
    from muster.nets.torch_net import TorchNet, make_net
    from muster.nets.torch_policy import TorchPolicy

__all__ = [
    "MLP",
    "ActionHead",
    "ActorCritic",
    "Adam",
    "DeviceAdam",
    "DictEncoder",
    "DuelingHead",
    "FlatParameters",
    "Flatten",
    "FusedNet",
    "ImpalaCNN",
    "ModelError",
    "NatureCNN",
    "NonFiniteError",
    "ObsNorm",
    "OneHot",
    "RecurrentActorCritic",
    "RecurrentPolicy",
    "ResNet",
    "TorchNet",
    "TorchPolicy",
    "build_q_network",
    "get_model",
    "make_adam",
    "make_encoder",
    "make_net",
    "make_policy_net",
    "register_model",
]

__getattr__ = load_when_asked_for(
    __name__,
    {
        "ActionHead": "muster.nets.action_head",
        "ActorCritic": "muster.nets.actor_critic",
        "Adam": "muster.nets.adam",
        "DeviceAdam": "muster.nets.adam",
        "DictEncoder": "muster.nets.encoders",
        "DuelingHead": "muster.nets.mlp",
        "FlatParameters": "muster.nets.flat",
        "FusedNet": "muster.nets.fused_net",
        "Flatten": "muster.nets.encoders",
        "ImpalaCNN": "muster.nets.impala_cnn",
        "MLP": "muster.nets.mlp",
        "ModelError": "muster.nets.errors",
        "NatureCNN": "muster.nets.cnn",
        "NonFiniteError": "muster.nets.errors",
        "ObsNorm": "muster.nets.normalizer",
        "OneHot": "muster.nets.encoders",
        "RecurrentActorCritic": "muster.nets.recurrent",
        "RecurrentPolicy": "muster.nets.recurrent",
        "ResNet": "muster.nets.resnet",
        "TorchNet": "muster.nets.torch_net",
        "TorchPolicy": "muster.nets.torch_policy",
        "build_q_network": "muster.nets.q_network",
        "get_model": "muster.nets.registry",
        "make_adam": "muster.nets.adam",
        "make_encoder": "muster.nets.encoders",
        "make_net": "muster.nets.torch_net",
        "make_policy_net": "muster.nets.build_policy",
        "register_model": "muster.nets.registry",
    },
)
