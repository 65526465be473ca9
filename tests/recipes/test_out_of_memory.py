"""A worker that is ended for lack of memory: the same bits, or an error with the reason.

The killer here does what earlyoom, systemd-oomd and the kernel do: SIGKILL to the process that has
grown too large. That the kernel counts its own kills is tested on files, in test_container.py.
"""

import json
import os
import re
import resource
import threading
import time
from contextlib import suppress
from pathlib import Path
from signal import SIGKILL

import pytest
from faulty import Fault, Started, run

from muster import Parallel, container

SERVER = "muster.engines.local.forked"
ROOM = 150 << 20


class Killer(threading.Thread):
    """Ends nodes of a run that have grown by more than ROOM since they were first seen."""

    def __init__(self, training):
        super().__init__(daemon=True)
        self._training = training
        self.killed = []

    def run(self):
        first = {}
        server = None
        while self._training.process.poll() is None:
            server = server or self._training.helper(SERVER)
            for pid in self._children(server):
                with suppress(OSError, IndexError, ValueError):
                    used = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096
                    if used > first.setdefault(pid, used) + ROOM:
                        os.kill(int(pid), SIGKILL)
                        self.killed.append(first.pop(pid))
            time.sleep(0.005)

    def _children(self, pid):
        with suppress(OSError):
            return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return []


def result(run_dir):
    return json.loads((run_dir / "result.json").read_text())


@pytest.mark.slow
def test_an_env_that_leaks_costs_no_bit_and_every_replacement_is_said(tmp_path):
    """Half a MB for each step of an env: some four rollouts in each life of a worker."""
    sizes = {"env_steps": 2048, "eval_every": 0}
    fault = Fault("step", 1 << 19, "leak")
    with Started("ppo", tmp_path / "run", 2, fault, quiet=False, **sizes) as training:
        killer = Killer(training)
        killer.start()
        code, said = training.end()
        killer.join()
    assert code == 0, said
    assert len(killer.killed) >= 3, "the killer did not get to work"
    lines = re.findall(r"was replaced: it was ended by SIGKILL.*; ", said)
    assert result(tmp_path / "run")["replacements"] == len(lines) >= 3
    run("ppo", tmp_path / "serial", 0, **sizes)
    wanted = result(tmp_path / "serial")
    assert result(tmp_path / "run")["policy_sha256"] == wanted["policy_sha256"]


@pytest.mark.slow
@pytest.mark.parametrize(("algo", "workers"), [("ppo", 1), ("ppo", 2), ("dqn", 3)])
def test_one_that_needs_too_much_every_time_ends_the_run_with_the_reason(tmp_path, algo, workers):
    fault = Fault("episode", 5, "hog") if algo == "ppo" else Fault("step", 40, "hog", "actor")
    with Started(algo, tmp_path / "run", workers, fault) as training:
        killer = Killer(training)
        killer.start()
        code, said = training.end()
        killer.join()
    assert code == 1
    lines = said.splitlines()
    assert len(lines) == 3, said
    assert (
        "it was ended by SIGKILL" in lines[1] and "3 times in a row at the same place" in lines[1]
    )
    assert len(killer.killed) >= 3
    assert not (tmp_path / "run" / "result.json").exists()


@pytest.mark.parametrize(("algo", "workers"), [("ppo", 2), ("dqn", 0)])
def test_one_that_gets_no_more_memory_ends_the_run_with_the_reason(tmp_path, algo, workers):
    limit = 8 << 30

    def lower():
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    fault = Fault("step", 512 << 20, "reserve")
    with Started(algo, tmp_path / "run", workers, fault, before=lower) as training:
        code, said = training.end()
    assert code == 1, said
    lines = said.splitlines()
    assert len(lines) == 3 and "MemoryError" in lines[0], said
    log = Path(lines[2].rpartition("see ")[2]).read_text()
    assert "MemoryError" in log
    assert not (tmp_path / "run" / "result.json").exists()


def dies():
    os.kill(os.getpid(), SIGKILL)


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        (
            [4, 5],
            "it was ended by SIGKILL, sent by the system, which was out of memory (it counted an "
            "oom_kill)",
        ),
        ([4, 4], "it was ended by SIGKILL"),
        (
            [None, None],
            "it was ended by SIGKILL, sent from outside: maybe by the system, which was out of "
            "memory",
        ),
    ],
)
def test_the_kernels_own_count_is_named(monkeypatch, counts, said):
    monkeypatch.setattr("muster.engines.local.member.memory_kills", lambda: counts.pop(0))
    with pytest.raises(Exception) as caught:
        Parallel.runner(1)(dies)
    assert caught.value.args[1] == said


def test_kills_are_counted_here_or_not_at_all():
    found = container.memory_kills()
    assert found is None or found >= 0
