"""`TorchCarrier`: published bytes go by the collective of torch.distributed (gloo or NCCL).

    round k   all ranks gather the sizes of their k-th publications, then the publications

Only bytes are gathered: gradients are added by each rank itself, in the order of slots, so the
bits are those of the wires. The wires still carry everything else, and notice a lost rank.
"""

import os
import queue
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from muster.engines.join.arrays import RankArrays

_LONGEST = timedelta(days=7)
"""How long a rank may be behind the others: they wait while rank 0 evaluates, for any time."""
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_CLOSE_SECONDS = 10.0


def listening_store(host: str, world: int) -> tuple[Any, int]:
    """Return the store at which torch's ranks find each other, and its port. For rank 0."""
    store = _distributed().TCPStore(host, 0, world, True, _LONGEST, wait_for_workers=False)
    return store, store.port


def connected_store(host: str, port: int, world: int) -> Any:
    """Return the same store on another rank."""
    return _distributed().TCPStore(host, port, world, False, _LONGEST)


def _distributed() -> Any:
    """Return the module of torch, whose type hints lack some of its names."""
    import torch.distributed

    return torch.distributed


class TorchCarrier:
    """Carries the publications of all ranks, each in a round of two collective calls.

    Args:
        backend: `gloo` or `nccl`.
        host: Where rank 0 listens: on loopback, gloo stays there, too.
        store: Where torch's ranks find each other.
        rank: This rank.
        world: Number of ranks.
        device: The device of the tensors that are gathered.
    """

    def __init__(
        self, backend: str, host: str, store: Any, rank: int, world: int, device: str
    ) -> None:
        self._backend = backend
        self._host = host
        self._store = store
        self._rank = rank
        self._world = world
        self._device = device
        self._todo: queue.SimpleQueue[tuple[Sequence[tuple[int, int]], int] | None]
        self._todo = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def begin(self, arrays: RankArrays, fail: Callable[[Exception], None]) -> None:
        """Start the thread that talks to the collective: the main thread must hear signals."""
        self._arrays = arrays
        self._fail = fail
        self._thread = threading.Thread(target=self._serve, name="muster-collective", daemon=True)
        self._thread.start()

    def publish(self, spans: Sequence[tuple[int, int]], count: int) -> None:
        """Queue a publication. Every rank publishes equally often."""
        self._todo.put((spans, count))

    def close(self) -> None:
        """End the thread, after the last round."""
        if self._thread is not None:
            self._todo.put(None)
            self._thread.join(_CLOSE_SECONDS)

    def _serve(self) -> None:
        dist = _distributed()
        if self._host in _LOOPBACK:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        try:
            dist.init_process_group(
                self._backend,
                store=self._store,
                rank=self._rank,
                world_size=self._world,
                timeout=_LONGEST,
            )
            while (item := self._todo.get()) is not None:
                self._carry(*item)
            dist.destroy_process_group()
        except Exception as error:
            self._fail(error)

    def _carry(self, spans: Sequence[tuple[int, int]], count: int) -> None:
        """Gather one publication of every rank, and set all counters."""
        own = b"".join(self._arrays.payload(spans))
        sizes = self._gathered([count, len(own)], "int64")
        most = max(int(size) for _, size in sizes)
        everyone = self._gathered(own.ljust(most, b"\0"), "uint8")
        for rank, (data, (its_count, size)) in enumerate(zip(everyone, sizes, strict=True)):
            if rank != self._rank:
                self._arrays.accept(rank, int(its_count), memoryview(data)[: int(size)])
        self._arrays.count(self._rank, count)

    def _gathered(self, own: Sequence[int], dtype: str) -> list[Any]:
        """Return the numbers of all ranks, by rank, as arrays."""
        import torch

        kind = getattr(torch, dtype)
        raw = bytearray(own) if isinstance(own, bytes) else own
        mine = (
            torch.frombuffer(raw, dtype=kind) if raw is not own else torch.tensor(own, dtype=kind)
        )
        mine = torch.empty_like(mine, device=self._device).copy_(mine)
        found = [torch.empty_like(mine) for _ in range(self._world)]
        _distributed().all_gather(found, mine)
        return [torch.empty_like(each, device="cpu").copy_(each).numpy() for each in found]
