"""The process that nodes come from: nobody can reach it, and a run survives its death."""

import os
import signal
import socket
import subprocess
import sys
import textwrap
from contextlib import suppress
from pathlib import Path

import pytest
from process_watch import descendants, eventually, parents, slowdown

pytestmark = pytest.mark.timeout(600)

MARK = "muster.engines.local.forked"
PROGRAM = """
    import os, sys, time
    from pathlib import Path
    from muster import Parallel, Task
    from muster.flow import Team

    place, on_failure = Path(sys.argv[1]), sys.argv[2]

    def main():
        team = Team({"sums": ((2,), "i8"), "is_last": ((2,), "i8")})
        with Task() as task:
            me = task.router.node_id

            def work(ctx):
                n = team.arrivals
                team.wait()
                if not (n and team["is_last"][(n - 1) % 2]):  # else it died when all was done
                    if me == 0:
                        told = task.told_to_finish is not None
                        team["is_last"][n % 2] = told or n == 2999
                    team["sums"][me] = n + 1
                    team.meet()
                    n += 1
                if n == 3:
                    (place / f"ready.{me}.{os.getpid()}").touch()
                time.sleep(0.002)
                yield
                ctx.finish = bool(team["is_last"][(n - 1) % 2])
                if ctx.finish:
                    (place / f"saved.{me}").touch()

            task.use(work)
            task.run(end="agreed")
            return int(team["sums"][me])

    if __name__ == "__main__":
        print(Parallel.runner(2, on_failure=on_failure)(main))
    """


@pytest.fixture
def start(tmp_path):
    script = tmp_path / "program.py"
    script.write_text(textwrap.dedent(PROGRAM))
    place = tmp_path / "place"
    place.mkdir()
    children = []

    def _start(on_failure="restart"):
        child = subprocess.Popen(
            [sys.executable, script, place, on_failure],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        children.append(child)
        assert eventually(lambda: len(list(place.glob("ready.*"))) == 2, 30.0)
        return child, place

    yield _start
    for child in children:
        for pid in [*below(child.pid), child.pid]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        child.communicate()


def below(pid):
    """Return every process below one, helpers included."""
    found, known = [pid], parents()
    for each in found:
        found += [other for other, parent in known.items() if parent == each]
    return found[1:]


def server_of(driver):
    """Return the fork server of a driver, once it has forked."""
    known = parents()
    return next(
        pid
        for pid, parent in known.items()
        if parent == driver and MARK.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    )


def listeners(pids):
    """Return the addresses that these processes listen at."""
    inodes = set()
    for pid in pids:
        for fd in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                target = os.readlink(fd)
                if target.startswith("socket:["):
                    inodes.add(target[8:-1])
    found = []
    for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "00010000" and fields[6] in inodes:
            found.append(fields[7] if len(fields) > 7 else "")
    return found


def test_nothing_of_a_run_listens_but_its_nodes_in_their_private_directory(start):
    child, _ = start()
    pids = [child.pid, *below(child.pid)]
    addresses = listeners(pids)
    assert len(addresses) == 2, addresses
    for address in addresses:
        directory = Path(address).parent
        assert directory.name.startswith(f"muster-{child.pid}-")
        assert directory.stat().st_mode & 0o777 == 0o700
        assert directory.stat().st_uid == os.getuid()
        # Somebody who says nothing, and somebody who says nonsense, change nothing.
        with socket.socket(socket.AF_UNIX) as silent, socket.socket(socket.AF_UNIX) as noisy:
            silent.connect(address)
            noisy.connect(address)
            noisy.sendall(b"x" * 64)
    child.send_signal(signal.SIGTERM)
    _, said = child.communicate(timeout=300)
    assert child.returncode == 143, said


def test_a_run_goes_on_when_its_fork_server_is_killed(start):
    child, place = start()
    first = server_of(child.pid)
    nodes = {int(path.name.split(".")[2]) for path in place.glob("ready.*")}
    os.kill(first, signal.SIGKILL)
    assert eventually(lambda: nodes.isdisjoint(below(child.pid)), 5.0), "nodes did not die with it"
    assert eventually(lambda: len(below(child.pid)) >= 4, 10.0), "no new server and nodes"
    assert server_of(child.pid) != first
    out, err = child.communicate(timeout=50)
    assert (child.returncode, out.strip()) == (0, "[3000, 3000]"), err
    assert err.count("was replaced: it ended with the fork server") == 2, err


def test_without_replacement_the_run_ends_with_an_error_that_says_so(start):
    child, _ = start("stop")
    os.kill(server_of(child.pid), signal.SIGKILL)
    _, err = child.communicate(timeout=300)
    assert child.returncode == 1
    assert "muster.errors.NodeError: node" in err
    assert "it ended with the fork server" in err
    assert "ConnectionRefusedError" not in err and "EOFError" not in err


@pytest.mark.parametrize("delay", ["at once", "when the nodes are dead", "when there are new ones"])
def test_sigterm_to_the_group_after_the_server_was_killed_still_lets_nodes_save(start, delay):
    child, place = start()
    nodes = {int(path.name.split(".")[2]) for path in place.glob("ready.*")}
    os.kill(server_of(child.pid), signal.SIGKILL)
    if delay != "at once":
        assert eventually(lambda: nodes.isdisjoint(below(child.pid)), 5.0)
    if delay == "when there are new ones":
        assert eventually(lambda: len(below(child.pid)) >= 4, 10.0)
    os.killpg(child.pid, signal.SIGTERM)
    _, err = child.communicate(timeout=300)
    assert child.returncode == 143, err
    assert sorted(path.name for path in place.glob("saved.*")) == ["saved.0", "saved.1"], err
    assert below(child.pid) == []


def test_sigterm_to_every_process_is_left_to_the_driver(start):
    """As `systemctl stop` does it: to each process of the unit, not to a group."""
    child, place = start()
    for pid in [child.pid, *below(child.pid)]:
        os.kill(pid, signal.SIGTERM)
    _, err = child.communicate(timeout=300)
    assert child.returncode == 143, err
    assert sorted(path.name for path in place.glob("saved.*")) == ["saved.0", "saved.1"], err


def test_the_server_ends_with_its_driver(start):
    child, _ = start()
    pids = below(child.pid)
    child.kill()
    child.wait()
    assert eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), 5.0)


@pytest.mark.parametrize("answer", ["read", "unread"])
def test_the_server_removes_the_directory_of_a_driver_that_is_gone(tmp_path, answer):
    """Also if the driver was killed between asking for a process and the answer."""
    directory = tmp_path / "sockets"
    directory.mkdir()
    driver, served = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    code = f"from {MARK} import serve; serve({served.fileno()}, [])"
    server = subprocess.Popen(
        [sys.executable, "-c", code], pass_fds=[served.fileno()], stderr=subprocess.PIPE
    )
    served.close()
    try:
        assert driver.recv(100) == b"ready"
        if answer == "unread":
            server.send_signal(signal.SIGSTOP)
        with open(os.devnull, "rb") as nothing:  # the node ends at once: there is no program
            socket.send_fds(driver, [os.fsencode(directory)], [nothing.fileno()] * 4)
        if answer == "read":
            _, fds, _, _ = socket.recv_fds(driver, 100, 1)
            os.close(fds[0])
        driver.close()
        server.send_signal(signal.SIGCONT)
        server.communicate(timeout=60)
    finally:
        server.kill()
        server.communicate()
        driver.close()
    assert server.returncode == 0
    assert not directory.exists()


def test_a_finished_driver_leaves_no_process(start):
    child, _ = start()
    pids = below(child.pid)
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=300)
    assert eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), 2.0)
    assert descendants(child.pid) == {}


SLOW_IMPORT = """
    import sys
    from muster.cli.leaving import leave_at_once_on_signals
    from muster import Parallel

    def main():
        pass

    if __name__ == "__main__":
        leave_at_once_on_signals()
        Parallel.prepare("slow_import")
        print("prepared", flush=True)
        Parallel.runner(2)(main)
    """


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_while_the_server_imports_ends_command_and_server_at_once(tmp_path, number):
    (tmp_path / "program.py").write_text(textwrap.dedent(SLOW_IMPORT))
    (tmp_path / "slow_import.py").write_text(
        f"import time; open({str(tmp_path / 'begun')!r}, 'w').close(); time.sleep(50)"
    )
    child = subprocess.Popen(
        [sys.executable, tmp_path / "program.py"], stderr=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert eventually((tmp_path / "begun").exists, 30.0)
        assert child.stdout.readline() == b"prepared\n"
        # It waits for the server. A kernel that does not tell says 0.
        waits = Path(f"/proc/{child.pid}/wchan")
        assert eventually(lambda: "poll" in waits.read_text() or waits.read_text() == "0", 10.0)
        pids = below(child.pid)
        child.send_signal(number)
        _, err = child.communicate(timeout=5.0 * slowdown())
        assert (child.returncode, err) == ({9: -9}.get(number, 128 + number), b"")
        assert eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), 5.0)
    finally:
        child.kill()
        child.communicate()
