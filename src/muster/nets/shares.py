"""Shares of one batch: each has its own gradient, and these are summed in order.

    Shares        the interface for agents: compute some shares, and sum their gradients
    SharesInTurn  one after another, in this thread
    SideBySide    spread over threads of this process, each share always in the same one

No bit of a share depends on which thread or process computes it, and the order of the sum does not
depend on which share is ready first. `muster.workers.replicas` has shares that several processes
compute.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

import torch

T = TypeVar("T", bound=tuple[Any, ...])


class Shares(Protocol):
    """Computes the shares of a batch."""

    @property
    def members(self) -> int:
        """Maximum number of shares."""

    @property
    def threads(self) -> int:
        """Threads of this process that are used at once."""

    def __call__(
        self, call: Callable[[int], T], count: int, gradients: Sequence[Any]
    ) -> list[tuple[Any, ...]]:
        """Return the results of call(0) to call(count - 1), wherever they run.

        Args:
            call: Computes a share. Writes the gradient with the share's number, and returns plain
                values and arrays.
            count: Number of shares.
            gradients: One for each share. When this returns, the first is the sum of all.
        """


class SharesInTurn:
    """Computes shares one after another."""

    threads = 1
    """Only the calling thread."""

    def __init__(self, members: int) -> None:
        self.members = members
        """Maximum number of shares."""

    def __call__(
        self, call: Callable[[int], T], count: int, gradients: Sequence[Any]
    ) -> list[tuple[Any, ...]]:
        """Call for each share; see `Shares`."""
        found = [call(share) for share in range(count)]
        add_up(gradients[:count])
        return list(found)


class SideBySide:
    """Computes shares spread over threads.

    Most of a call runs in compiled code that releases the GIL. A share does not depend on the
    number of threads: each call runs in one thread, always the same one for a share, so networks
    keep their temporary arrays.

    Args:
        members: Maximum number of shares.
        threads: Threads to use, including this one.
    """

    def __init__(self, members: int, threads: int) -> None:
        threads = max(1, min(members, threads))
        # torch has a separate number of threads for each thread that calls it.
        each = torch.get_num_threads()
        self._pools = [
            ThreadPoolExecutor(1, f"muster-beside-{k}", torch.set_num_threads, (each,))
            for k in range(1, threads)
        ]
        self.members = members
        """Maximum number of shares."""
        self.threads = threads
        """Threads that are used, including this one."""

    def __call__(
        self, call: Callable[[int], T], count: int, gradients: Sequence[Any]
    ) -> list[tuple[Any, ...]]:
        """Compute all shares, and return when the last has ended; see `Shares`."""
        threads = self.threads
        pending: dict[int, Future[T]] = {}
        for share in range(count):
            if share % threads:
                pending[share] = self._pools[share % threads - 1].submit(call, share)
        done: dict[int, T] = {}
        try:
            for share in range(0, count, threads):
                done[share] = call(share)
        finally:  # no thread may still be working when this returns, even after a failure
            for future in pending.values():
                future.exception()
        found = [done[k] if k in done else pending[k].result() for k in range(count)]
        add_up(gradients[:count])
        return list(found)


def add_up(gradients: Sequence[Any]) -> None:
    """Make the first gradient the sum of all, added in order."""
    total = gradients[0]
    for other in gradients[1:]:
        total += other


def rows_of_shares(rows: int, shares: int) -> list[slice]:
    """Return the rows of each share of a batch, divided as evenly as possible."""
    count = max(1, min(shares, rows))
    return [slice(rows * k // count, rows * (k + 1) // count) for k in range(count)]
