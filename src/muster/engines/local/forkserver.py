"""Where node processes come from: a fork server that has the heavy imports behind it.

It is Python's own (`multiprocessing`), and one for all runs of this process. It has one thread, so
forking it is safe; numeric libraries are told to start none while it imports them.
"""

import multiprocessing
import os
import sys
import threading
from collections.abc import Sequence
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext

from muster.engines.local.child import THREAD_VARIABLES
from muster.engines.local.own_group import OWN_GROUP

_HEAVY = ("numpy", "torch", "gymnasium", "numba", "muster.flow.node", "muster.engines.local.child")
"""Imported by the fork server, if this process has imported them, or says that it will."""

_starting = threading.Lock()
_started = False


def context(preload: Sequence[str] = ()) -> ForkServerContext:
    """Return the `multiprocessing` context of nodes, its server running.

    Args:
        preload: Modules that the server imports besides, if it is not running yet.
    """
    global _started
    ctx = multiprocessing.get_context("forkserver")
    with _starting:
        if not _started:
            _started = True
            heavy = [name for name in _HEAVY if preload or name in sys.modules]
            ctx.set_forkserver_preload(["muster.engines.local.own_group", *heavy, *preload])
            before = dict(os.environ)
            os.environ.update(dict.fromkeys(THREAD_VARIABLES, "1"))
            os.environ[OWN_GROUP] = "1"
            try:
                forkserver.ensure_running()
            finally:
                os.environ.clear()
                os.environ.update(before)
    return ctx
