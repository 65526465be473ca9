"""Checks the limits of this machine before any process is started."""

import os
import resource
import sys

from muster.container import processes, whole_cores
from muster.engines.base import Launch
from muster.errors import OptionError

_PARENTS_FILES_PER_NODE = 6
_TASKS_PER_NODE = 3
"""Its main thread, the thread that reads its links, and one thread of a numeric library."""
_HELPERS = 2
_NODES_OWN_FILES = 64
"""Descriptors of a node besides its links: blocks, pipes, the user's own."""


def check(launch: Launch) -> None:
    """Raise OptionError if the program cannot run on this machine."""
    if not hasattr(os, "memfd_create"):
        raise OptionError(
            f"the local engine does not run on {sys.platform}",
            "it needs Linux: memfd, and a signal when the parent process dies",
            "run serially, or on Linux",
        )
    size = len(launch.places)
    needed = max(_PARENTS_FILES_PER_NODE * size + _NODES_OWN_FILES, size + _NODES_OWN_FILES)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        if hard != resource.RLIM_INFINITY and hard < needed:
            raise OptionError(
                f"{size} nodes need {needed} open files, and the limit of this process is {hard}",
                "each node has pipes to its parent and links to the others",
                f"ulimit -n {needed}, or fewer nodes",
            )
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))

    _check_processes(size)


def _check_processes(size: int) -> None:
    left = processes()
    needed = _TASKS_PER_NODE * size + _HELPERS
    if left is not None and left.amount < needed:
        raise OptionError(
            f"{size} nodes need {needed} processes and threads",
            f"only {left.amount} more can be started: {left.by}",
            "fewer nodes (--workers), or a higher limit",
        )


def threads_of(launch: Launch) -> int:
    """Return the number of threads that numeric libraries may use in each node."""
    if launch.threads is not None:
        return launch.threads
    return max(1, whole_cores() // len(launch.places))


def cores_of(node: int, nodes: int) -> frozenset[int]:
    """Return the cores for one of this machine's nodes, if nodes are pinned."""
    cores = sorted(os.sched_getaffinity(0))
    each = max(1, len(cores) // nodes)
    first = node * each % len(cores)
    return frozenset(cores[first : first + each])
