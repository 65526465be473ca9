"""Networks: torch modules, their weights as one vector, and fast ways to run the small ones.

obs_space, n_actions -> build_q_network -> module -> FlatParameters -> make_net -> q, gradient
                                                           |                          |
                                                           +----------- Adam <--------+
"""

from muster.nets.adam import Adam
from muster.nets.cnn import NatureCNN
from muster.nets.encoders import DictEncoder, Flatten, OneHot, make_encoder
from muster.nets.errors import ModelError, NonFiniteError
from muster.nets.fast_mlp import FastMLP, fast_mlp, why_not_fast
from muster.nets.flat import FlatParameters
from muster.nets.mlp import MLP, DuelingHead
from muster.nets.q_network import build_q_network
from muster.nets.registry import get_model, register_model
from muster.nets.torch_net import TorchNet, make_net

__all__ = [
    "MLP",
    "Adam",
    "DictEncoder",
    "DuelingHead",
    "FastMLP",
    "FlatParameters",
    "Flatten",
    "ModelError",
    "NatureCNN",
    "NonFiniteError",
    "OneHot",
    "TorchNet",
    "build_q_network",
    "fast_mlp",
    "get_model",
    "make_encoder",
    "make_net",
    "register_model",
    "why_not_fast",
]
