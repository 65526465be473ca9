"""Shares of one batch: each has a gradient of its own, and these are added up in their order.

    Shares      what an agent asks: have some shares computed, and their gradients added up
    SharesInTurn      one after the other, in this thread
    SideBySide  spread over threads of this process, each share always in the same one

Who computes a share changes no bit of it, and the order of the sum does not depend on who is ready
first. `muster.workers.replicas` has shares that are computed by several processes.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

import torch

T = TypeVar("T", bound=tuple[Any, ...])


class Shares(Protocol):
    """Has the shares of a batch computed."""

    @property
    def members(self) -> int:
        """How many there are at most."""

    @property
    def threads(self) -> int:
        """Threads of this process that are used at once."""

    def __call__(
        self, call: Callable[[int], T], count: int, gradients: Sequence[Any]
    ) -> list[tuple[Any, ...]]:
        """Return what call(0) to call(count - 1) return, wherever they are called.

        Args:
            call: Computes a share. Writes its gradient to the one of that number, and returns plain
                values and arrays.
            count: Of shares.
            gradients: One for each share. The first is the sum of all when this returns.
        """


class SharesInTurn:
    """Computes shares one after the other."""

    threads = 1
    """This one."""

    def __init__(self, members: int) -> None:
        self.members = members
        """How many there are at most."""

    def __call__(
        self, call: Callable[[int], T], count: int, gradients: Sequence[Any]
    ) -> list[tuple[Any, ...]]:
        """Call for each share; see `Shares`."""
        found = [call(share) for share in range(count)]
        add_up(gradients[:count])
        return list(found)


class SideBySide:
    """Calls for some shares, spread over threads.

    Most of a call is spent in compiled code that leaves Python to others. What a share is does not
    depend on the number of threads: each call runs in one thread, always the same one for a share,
    so networks keep the arrays that they work in.

    Args:
        members: How many shares there are at most.
        threads: Threads to use, this one included.
    """

    def __init__(self, members: int, threads: int) -> None:
        threads = max(1, min(members, threads))
        # torch asks each thread how many it may use in turn.
        each = torch.get_num_threads()
        self._pools = [
            ThreadPoolExecutor(1, f"muster-beside-{k}", torch.set_num_threads, (each,))
            for k in range(1, threads)
        ]
        self.members = members
        """How many shares there are at most."""
        self.threads = threads
        """That are used, this one included."""

    def __call__(
        self, call: Callable[[int], T], count: int, gradients: Sequence[Any]
    ) -> list[tuple[Any, ...]]:
        """Call for all shares, and return when the last has ended; see `Shares`."""
        threads = self.threads
        pending: dict[int, Future[T]] = {}
        for share in range(count):
            if share % threads:
                pending[share] = self._pools[share % threads - 1].submit(call, share)
        done: dict[int, T] = {}
        try:
            for share in range(0, count, threads):
                done[share] = call(share)
        finally:  # nobody is at work any more when this returns, also where one has failed
            for future in pending.values():
                future.exception()
        found = [done[k] if k in done else pending[k].result() for k in range(count)]
        add_up(gradients[:count])
        return list(found)


def add_up(gradients: Sequence[Any]) -> None:
    """Make the first gradient the sum of all, added in their order."""
    total = gradients[0]
    for other in gradients[1:]:
        total += other


def rows_of_shares(rows: int, shares: int) -> list[slice]:
    """Return the rows of each share of a batch, as equal in number as can be."""
    count = max(1, min(shares, rows))
    return [slice(rows * k // count, rows * (k + 1) // count) for k in range(count)]
