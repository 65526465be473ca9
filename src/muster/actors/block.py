"""`Block`: a handle on one Ray actor, which can be passed to other blocks."""

from collections.abc import Mapping
from typing import Any

from muster.actors.calls import Call
from muster.actors.ray_here import check_room, need_ray, needs_of


class Block:
    """One actor, made from a plain class. Copies of the handle are handles on the same actor.

    Args:
        name: The name in messages.
        kind: The class that is instantiated in the actor.
        arguments: Arguments of its constructor.
        options: Options of Ray: `num_cpus`, `num_gpus`, `resources`, `max_restarts`, ...
    """

    def __init__(
        self,
        name: str,
        kind: type,
        arguments: Mapping[str, Any],
        options: Mapping[str, Any],
    ) -> None:
        ray = need_ray()
        check_room({name: needs_of(options)})
        self.name = name
        self.actor: Any = ray.remote(kind).options(**options).remote(**arguments)
        """Ray's own handle."""
        # Requested first: a later request would be answered only after all calls before it.
        self._started = self.actor.__ray_ready__.remote()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_started": None}

    def _call(self, method: str, *arguments: Any) -> Call:
        """Start a method of the actor."""
        return Call(self.name, getattr(self.actor, method).remote(*arguments), self._started)

    def close(self) -> None:
        """End the actor now; otherwise it ends when the last handle is deleted."""
        need_ray().kill(self.actor)
