"""A node's process on a Ray cluster: `python -m muster.engines.ray.process FD`.

The node actor starts this process, and sends its setup over an inherited pipe. From then on it is a
node like any other: it connects to the others by Unix sockets; behind some of them are proxies of
nodes on other machines. It knows nothing of Ray.
"""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import cloudpickle

from muster.engines.base import Launch
from muster.engines.local.child import THREAD_VARIABLES, NodeSetup, run_as_node
from muster.engines.local.handshake import Secrets
from muster.engines.local.limits import cores_of
from muster.engines.memory import SharedMemory
from muster.engines.progress import ProgressPage
from muster.framework.node import Place


@dataclass(frozen=True)
class PortableProgram:
    """The program of all nodes of a run, and where to find its modules."""

    code: bytes
    """main, args and kwargs, by cloudpickle: only the driver may have the script of `main`."""
    sys_path: tuple[str, ...]
    directory: str
    environment: Mapping[str, str]


def program_of(launch: Launch) -> PortableProgram:
    """Return the program of a launch, in a form that can be sent to other machines."""
    return PortableProgram(
        code=cloudpickle.dumps((launch.main, launch.args, dict(launch.kwargs))),
        sys_path=tuple(sys.path),
        directory=os.getcwd(),
        environment={name: value for name, value in os.environ.items() if name[:7] == "MUSTER_"},
    )


@dataclass(frozen=True)
class ProcessSetup:
    """The setup that a node actor sends to a new process."""

    place: Place
    program: PortableProgram
    threads: int
    is_spread: bool
    pin: tuple[int, int] | None
    """Index among this machine's nodes, and their number, if each is bound to its own cores."""
    # Set by the node actor.
    known: Secrets | None = None
    directory: Path = Path()
    out: int = -1
    """Descriptors that the process inherits."""
    err: int = -1
    progress: int = -1
    memory: int = -1
    """-1 if the shared memory was lost with all machines that had it."""


def main() -> None:
    """Run as a node, with the setup that the node actor sends."""
    parent = Connection(int(sys.argv[1]))
    setup: ProcessSetup = parent.recv()
    assert setup.known is not None
    program = setup.program
    known = set(sys.path)
    sys.path += [entry for entry in program.sys_path if entry not in known]
    if os.path.isdir(program.directory):
        os.chdir(program.directory)
    environment = {**os.environ, **program.environment}
    environment.update(dict.fromkeys(THREAD_VARIABLES, str(setup.threads)))
    os.environ.update(environment)  # for the imports that follow
    program_main, args, kwargs = cloudpickle.loads(program.code)
    run_as_node(
        NodeSetup(
            place=setup.place,
            known=setup.known,
            directory=setup.directory,
            parent=parent,
            out=Connection(setup.out, readable=False),
            err=Connection(setup.err, readable=False),
            progress=ProgressPage(SharedMemory(setup.progress), setup.place.size),
            memory=None if setup.memory < 0 else SharedMemory(setup.memory),
            is_spread=setup.is_spread,
            environment=environment,
            threads=setup.threads,
            cores=None if setup.pin is None else cores_of(*setup.pin),
            main=program_main,
            args=args,
            kwargs=kwargs,
        )
    )


if __name__ == "__main__":
    main()
