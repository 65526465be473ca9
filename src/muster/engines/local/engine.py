"""`LocalEngine`: one process per node, on this machine."""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from muster.engines.base import Launch
from muster.engines.local import limits
from muster.engines.local.forkserver import SERVER
from muster.engines.local.handshake import Secrets
from muster.engines.local.member import LocalMember
from muster.engines.local.runtime_dir import runtime_directory
from muster.engines.memory import SharedMemory
from muster.engines.progress import ProgressPage
from muster.engines.supervisor import Supervisor
from muster.version import __version__


class LocalEngine:
    """One process per node, on this machine."""

    def prepare(self, modules: Sequence[str], address: str | None) -> None:
        """Start importing these modules for the nodes, without waiting."""
        SERVER.prepare(modules)

    def run(self, launch: Launch) -> list[Any]:
        """Return the results of `main`, one per node. Leaves nothing behind when it ends."""
        limits.check(launch)
        # Before the signals are left to nodes, which cannot answer one until the imports are done.
        SERVER.wait_until_ready(launch.start_within)
        with ExitStack() as stack:
            directory = stack.enter_context(runtime_directory())
            page = ProgressPage.create(len(launch.places))
            stack.callback(page.close)
            memory = SharedMemory.create()
            stack.callback(memory.close)
            secrets = Secrets.fresh(__version__)
            members = [
                LocalMember(place, launch, secrets, directory, page, memory)
                for place in launch.places
            ]
            return Supervisor(launch, members, page).run()
