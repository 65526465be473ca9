"""Computes the shares of one batch at once, each always in the same thread."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import torch

T = TypeVar("T")


class SideBySide:
    """Calls for some members, spread over threads.

    Most of a call is spent in compiled code that leaves Python to others. What a member computes
    does not depend on the number of threads: each call runs in one thread, always the same one for
    a member, so networks keep the arrays that they work in.

    Args:
        members: How many there are at most.
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
        """How many there are at most."""
        self.threads = threads
        """That are used, this one included."""

    def __call__(self, call: Callable[[int], T], members: int) -> list[T]:
        """Return what call(0) to call(members - 1) return, after all have ended."""
        threads = self.threads
        pending: dict[int, Future[T]] = {}
        for member in range(members):
            if member % threads:
                pending[member] = self._pools[member % threads - 1].submit(call, member)
        done: dict[int, T] = {}
        try:
            for member in range(0, members, threads):
                done[member] = call(member)
        finally:  # nobody is at work any more when this returns, also where one has failed
            for future in pending.values():
                future.exception()
        return [done[k] if k in done else pending[k].result() for k in range(members)]
