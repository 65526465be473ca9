"""A real head of a Ray cluster on loopback, with a token, for all tests of a session."""

import os
import secrets
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from muster.engines.ray import reaper


@dataclass(frozen=True)
class Head:
    """Where it is, and what opens it."""

    address: str
    token: str
    home: str
    """A home directory in which there is no token."""

    def env(self, token=None, **more):
        """Return an environment that knows nothing of this cluster but the token that is given."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        if token is not None:
            kept["RAY_AUTH_TOKEN"] = token
        return {**kept, "HOME": self.home, "RAY_USAGE_STATS_ENABLED": "0", **more}

    def driver(self, code, *args, env=None, timeout=300):
        """Run a program that may join a cluster; return what it printed.

        How long that takes depends on how busy the machine is: after `timeout` it counts as hung.
        """
        done = subprocess.run(
            [sys.executable, "-c", code, *args],
            env=self.env(self.token) if env is None else env,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


@pytest.fixture(scope="session")
def ray_head():
    """Start a head that ends with these tests, by the processes that it started."""
    pytest.importorskip("ray")
    directory = os.path.realpath(tempfile.mkdtemp(prefix="mh", dir="/tmp"))  # short: sockets
    home = tempfile.mkdtemp(prefix="home", dir=directory)
    head = Head(f"127.0.0.1:{free_port()}", secrets.token_hex(32), home)
    me = str(os.getpid())
    watch = subprocess.Popen([sys.executable, reaper.__file__, me, directory])
    try:
        subprocess.run(
            [
                Path(sys.executable).with_name("ray"),
                *("start", "--head", "--node-ip-address=127.0.0.1", "--num-cpus=2"),
                *(f"--port={head.address.partition(':')[2]}", f"--temp-dir={directory}"),
                *("--include-dashboard=false", "--object-store-memory=80000000"),
                "--disable-usage-stats",
            ],
            env=head.env(head.token, RAY_AUTH_MODE="token", RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0"),
            capture_output=True,
            check=True,
            timeout=200,
        )
        yield head
    finally:
        reaper.end_all(os.getpid(), directory)
        watch.kill()
        watch.wait()
