"""`counted`: how many calls of actors a piece of a program makes, and the bytes these carry."""

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.actor import ActorHandle


@dataclass
class Count:
    """What was called from this process."""

    calls: int = 0
    sent: int = 0
    """Bytes of arguments, pickled."""
    returned: int = 0
    """Bytes of results, pickled."""
    _refs: list[Any] = field(default_factory=list, repr=False)


@contextmanager
def counted() -> Iterator[Count]:
    """Count what is called inside the block; it costs time, so nothing is timed there."""
    count = Count()
    handle: Any = ActorHandle
    was = handle._actor_method_call

    def call(self: Any, method_name: str, args: Any = None, *rest: Any, **more: Any) -> Any:
        ref = was(self, method_name, args, *rest, **more)
        count.calls += 1
        count.sent += len(pickle.dumps(args, protocol=5))
        count._refs.append(ref)
        return ref

    handle._actor_method_call = call
    try:
        yield count
    finally:
        handle._actor_method_call = was
    count.returned = sum(len(pickle.dumps(ray.get(ref), protocol=5)) for ref in count._refs)
    count._refs.clear()
