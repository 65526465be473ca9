"""Several machines on this one: network namespaces with addresses of their own, and Ray on each.

    with Machines(cpus=[1, 1]) as machines:
        machines.run([sys.executable, "train.py"])      on the first, which has Ray's head
        machines.remove(1)                              all that ran there is killed
        machines.add(cpus=1)

Files are shared, as on a cluster with common storage. Where namespaces cannot be made (it takes
root and iproute2), Ray's nodes are all at 127.0.0.1: then only the addresses are not real.
"""

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_PORT = 6399
_STORE_BYTES = 100 << 20
_START_SECONDS = 90.0
_STARTS = 3
"""How often Ray is started: on a busy machine its servers miss its own limit of 30 s."""
_KILL_SECONDS = 2.0


@dataclass
class Machine:
    """One of them."""

    number: int
    name: str
    """Of its namespace; empty if it has none."""
    address: str
    directory: Path
    started: list[subprocess.Popen[Any]] = field(default_factory=list)

    def within(self, command: Sequence[str]) -> list[str]:
        """Return a command that runs another one there."""
        return [*(("ip", "netns", "exec", self.name) if self.name else ()), *command]

    def pids(self) -> list[int]:
        """Return all processes that run there."""
        if self.name:
            found = subprocess.run(
                ["ip", "netns", "pids", self.name], capture_output=True, text=True
            )
            return [int(pid) for pid in found.stdout.split()]
        pids = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    if str(self.directory).encode() in (entry / "cmdline").read_bytes():
                        pids.append(int(entry.name))
        return pids


class Machines:
    """A Ray cluster of several machines.

    Args:
        cpus: Of each machine, as Ray is to count them. The first has the head.
        stores: Whether the head stores its state, and its GCS may be killed and started again.
        variables: More of the environment of all of Ray's servers.
        pythons: By the number of a machine, the Python of its Ray, where that is another one.
        spill_to: Where the object stores of all machines put what they have no room for.
        bare: Whether the machines have no Ray.
    """

    def __init__(
        self,
        cpus: Sequence[float],
        stores: bool = False,
        variables: Mapping[str, str] | None = None,
        pythons: Mapping[int, str] | None = None,
        spill_to: Path | None = None,
        bare: bool = False,
    ) -> None:
        self._cpus = list(cpus)
        self._stores = stores
        self._variables = dict(variables or {})
        self._pythons = dict(pythons or {})
        self._spill_to = spill_to
        self._bare = bare
        self._label = f"m{secrets.token_hex(3)}"
        self._made = 0
        self._switch = ""
        self.machines: dict[int, Machine] = {}
        """Those that are there, by number."""
        self.token = secrets.token_hex(32)

    @property
    def address(self) -> str:
        """Of the head."""
        return f"{self._head.address}:{_PORT if self._switch else self._port}"

    @property
    def are_real(self) -> bool:
        """Whether machines have addresses of their own."""
        return bool(self._switch)

    def __enter__(self) -> "Machines":
        self._root = Path(tempfile.mkdtemp(prefix="mm", dir="/tmp"))
        try:
            self._make_switch()
            if self._stores:
                stored = {"RAY_gcs_storage": "rocksdb", "RAY_gcs_storage_path": self._root / "gcs"}
                self._variables.update({name: str(value) for name, value in stored.items()})
            for cpus in self._cpus:
                self.add(cpus)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for number in sorted(self.machines, reverse=True):
            self.remove(number)
        if self._switch:
            _ip("netns", "del", self._switch)
        shutil.rmtree(self._root, ignore_errors=True)

    def environment(self, **more: str) -> dict[str, str]:
        """Return what a program needs to be let into the cluster."""
        kept = {name: value for name, value in os.environ.items() if name[:4] != "RAY_"}
        own = {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": self.token,
            "RAY_USAGE_STATS_ENABLED": "0",
            # These machines share one memory, which may be full of something else.
            "RAY_memory_monitor_refresh_ms": "0",
            # And its cores, to which Ray's workers would come last.
            "RAY_worker_niceness": "0",
        }
        return {**kept, **own, **more}

    def add(self, cpus: float = 1) -> int:
        """Add a machine, and return its number once Ray runs on it, unless it is bare."""
        number, self._made = self._made, self._made + 1
        machine = self._plug_in(number)
        self.machines[number] = machine
        if self._bare:
            return number
        if number == 0:
            self._head, self._port = machine, _PORT if self._switch else _free_port()
            where = ["--head", f"--port={self._port}", "--include-dashboard=false"]
        else:
            where = [f"--address={self.address}"]
        command = [
            self._pythons.get(number, sys.executable),
            *("-m", "ray.scripts.scripts", "start"),
            *where,
            f"--node-ip-address={machine.address}",
            f"--num-cpus={cpus:g}",
            f"--object-store-memory={_STORE_BYTES}",
            *((f"--temp-dir={machine.directory}",) if number == 0 else ()),
            *((f"--object-spilling-directory={self._spill_to}",) if self._spill_to else ()),
            f'--resources={{"machine{number}": 1}}',
            "--disable-usage-stats",
            # Who stays takes all servers of its machine along when one of them ends.
            *(() if self._stores and number == 0 else ("--block",)),
        ]
        for left in reversed(range(_STARTS)):
            with (self._root / f"ray{number}.log").open("wb") as output:
                machine.started.append(
                    subprocess.Popen(
                        machine.within(command),
                        env=self.environment(**self._variables),
                        stdout=output,
                        stderr=subprocess.STDOUT,
                        stdin=subprocess.DEVNULL,
                    )
                )
            try:
                self._wait_for(number)
                break
            except RuntimeError:
                _end_all(machine)
                is_headless = number > 0 and not self._head.pids()
                if not left or is_headless:
                    raise
        return number

    def logs(self) -> list[Path]:
        """Return what Ray's processes have written on all machines."""
        return sorted(self._root.glob("**/session_2*/logs/*.*"))

    def remove(self, number: int, unplug: bool = False) -> None:
        """Kill all that runs on a machine, and take it away.

        Args:
            number: Which.
            unplug: Cut its line first: the others hear nothing any more, not even that it ends.
        """
        machine = self.machines.pop(number)
        if unplug and machine.name:
            _ip("-n", self._switch, "link", "set", f"{self._label}s{number}", "down")
        _end_all(machine)
        if machine.name:
            _ip("netns", "del", machine.name)

    def start(
        self, command: Sequence[str], number: int = 0, **options: Any
    ) -> "subprocess.Popen[str]":
        """Start a program on a machine."""
        machine = self.machines[number]
        process: subprocess.Popen[str] = subprocess.Popen(
            machine.within(command), env=self.environment(), text=True, **options
        )
        machine.started.append(process)
        return process

    # ---- parts of it

    def _make_switch(self) -> None:
        name = f"{self._label}s"
        if os.geteuid() == 0 and shutil.which("ip") and _ip("netns", "add", name):
            self._switch = name
            _ip("-n", name, "link", "add", "sw", "type", "bridge", must=True)
            _ip("-n", name, "link", "set", "sw", "up", must=True)

    def _plug_in(self, number: int) -> Machine:
        if not self._switch:
            # A directory only the processes of this machine have in their commands.
            directory = self._root if number == 0 else self._root / f"n{number}"
            return Machine(number, "", "127.0.0.1", directory)
        name, address = f"{self._label}n{number}", f"10.77.{os.getpid() % 200}.{number + 1}"
        here, there = f"{self._label}e{number}", f"{self._label}s{number}"
        _ip("netns", "add", name, must=True)
        _ip("link", "add", here, "type", "veth", "peer", "name", there, must=True)
        _ip("link", "set", here, "netns", name, must=True)
        _ip("link", "set", there, "netns", self._switch, must=True)
        _ip("-n", self._switch, "link", "set", there, "master", "sw", "up", must=True)
        _ip("-n", name, "addr", "add", f"{address}/24", "dev", here, must=True)
        for device in ("lo", here):
            _ip("-n", name, "link", "set", device, "up", must=True)
        return Machine(number, name, address, self._root / "r")

    def _wait_for(self, number: int) -> None:
        """Wait until Ray counts the machine."""
        log = self._root / f"ray{number}.log"
        deadline = time.monotonic() + _START_SECONDS
        process = self.machines[number].started[-1]
        while True:
            over = process.poll() is not None or time.monotonic() > deadline
            if "Ray runtime started" in log.read_text(errors="replace"):
                return
            if over:
                raise RuntimeError(f"machine {number} did not start:\n{log.read_text()}")
            time.sleep(0.1)


def _end_all(machine: Machine) -> None:
    """Kill all that runs on a machine."""
    deadline = time.monotonic() + _KILL_SECONDS
    while (pids := machine.pids()) and time.monotonic() < deadline:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
    for process in machine.started:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.wait()


def _ip(*arguments: str, must: bool = False) -> bool:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True)
    if must and done.returncode:
        raise RuntimeError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
    return done.returncode == 0


def _free_port() -> int:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
    return port
