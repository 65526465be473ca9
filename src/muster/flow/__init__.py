"""What moves between nodes, and how.

wire  values to bytes and back, without pickle: `pack`, `unpack`, `register_dataclass`
"""

from muster.flow.wire import CannotTravelError, WireError, can_travel, register_dataclass

__all__ = ["CannotTravelError", "WireError", "can_travel", "register_dataclass"]
