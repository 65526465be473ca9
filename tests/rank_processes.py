"""Ranks as real processes on this machine, started from a fork server that has torch loaded."""

import contextlib
import multiprocessing
import os
import socket
import sys
import time
from multiprocessing import forkserver
from pathlib import Path

TOKEN = "a token for tests, and long enough"
_PRELOAD = ["gymnasium", "torch", "muster.cli.main", "muster.recipes.train"]


class Rank:
    """One command of `muster`, in a process of its own."""

    def __init__(self, context, place, name, argv, variables, cwd=None):
        place.mkdir(parents=True, exist_ok=True)
        self._output = place / f"{name}.out"
        self._errors = place / f"{name}.err"
        arguments = (
            list(map(str, argv)), str(self._output), str(self._errors), variables, str(cwd or place)
        )  # fmt: skip
        self.process = context.Process(target=_run, args=arguments)
        self.process.start()

    @property
    def out(self):
        """What it has printed."""
        return self._output.read_text()

    @property
    def err(self):
        """What it has said on standard error."""
        return self._errors.read_text()

    def wait(self, seconds=120):
        """Return its exit code; it is killed if it takes longer."""
        self.process.join(seconds)
        if self.process.exitcode is None:
            self.process.kill()
            raise AssertionError(f"it hangs: {self.out} {self.err}")
        return self.process.exitcode


class Ranks:
    """Starts ranks that find each other at a free port."""

    def __init__(self, place):
        self.place = Path(place)
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(_PRELOAD)
        self._started = []

    def start(
        self, rank, world, *argv, address, token=TOKEN, variables=None, join=None, cwd=None
    ):  # fmt: skip
        """Start one rank of a run."""
        options = ["--join", join or address]
        if join is None:
            options += ["--rank", rank, "--world", world]
        given = {"MUSTER_TOKEN": token, **(variables or {})}
        name = f"rank{rank}-{len(self._started)}"
        one = Rank(self._context, self.place, name, [*argv, *options], given, cwd)
        self._started.append(one)
        return one

    def run(self, world, *argv, seconds=120, **given):
        """Start all ranks of a run with one command, and wait for them; all must succeed."""
        address = free_address()
        ranks = [self.start(rank, world, *argv, address=address, **given) for rank in range(world)]
        codes = [rank.wait(seconds) for rank in ranks]
        assert codes == [0] * world, [rank.err for rank in ranks]
        return ranks

    def close(self):
        """End what is left."""
        for rank in self._started:
            with contextlib.suppress(ValueError):
                rank.process.kill()
                rank.process.join()
        forkserver._forkserver._stop()


def free_address():
    """Return HOST:PORT at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"127.0.0.1:{listener.getsockname()[1]}"


def wait_until(condition, seconds=60):
    """Wait until a condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def _run(argv, output, errors, variables, cwd):
    """Run a command in this process, which was forked for it."""
    for number, name in ((1, output), (2, errors)):
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(fd, number)
        os.close(fd)
    os.environ.update(variables)
    os.chdir(cwd)
    from muster.cli.main import main

    code = main(argv)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
