"""Data flow between nodes.

    wire         values to bytes and back, without pickle
    board        the newest value only: parallel_ctx, ParameterServer
    stream       every message, in order, bounded: events, finish, Channel, GradientSum
    team         arrays that all nodes share, and a barrier
    dispatcher, node   route every message to its board or stream

Names are loaded on first use: a node that sends no arrays does not import NumPy.
"""

from typing import TYPE_CHECKING

from muster.lazy import load_when_asked_for

if TYPE_CHECKING:
    from muster.flow.channel import Channel, Parcelled
    from muster.flow.node import gathering
    from muster.flow.reduce import GradientSum
    from muster.flow.registry import CannotTravelError, WireError, register_dataclass
    from muster.flow.team import Team
    from muster.flow.weights import ParameterServer, Weights
    from muster.flow.wire import can_travel

__all__ = [
    "CannotTravelError",
    "Channel",
    "GradientSum",
    "ParameterServer",
    "Parcelled",
    "Team",
    "Weights",
    "WireError",
    "can_travel",
    "gathering",
    "register_dataclass",
]

__getattr__ = load_when_asked_for(
    __name__,
    {
        "CannotTravelError": "muster.flow.registry",
        "Channel": "muster.flow.channel",
        "GradientSum": "muster.flow.reduce",
        "ParameterServer": "muster.flow.weights",
        "Parcelled": "muster.flow.channel",
        "Team": "muster.flow.team",
        "Weights": "muster.flow.weights",
        "WireError": "muster.flow.registry",
        "can_travel": "muster.flow.wire",
        "gathering": "muster.flow.node",
        "register_dataclass": "muster.flow.registry",
    },
)
