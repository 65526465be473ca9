"""Joining a Ray cluster: a real one on loopback, one of our own, and all that is refused.

Drivers are processes of their own: other tests of this session may have joined a cluster.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import pytest
from process_watch import descendants, eventually

from muster import MusterWarning, OptionError
from muster.engines.ray import ask, cluster, supply
from muster.engines.ray.cluster import About, check_supply, check_versions, look_at
from muster.installs import install

pytest.importorskip("ray")
pytestmark = pytest.mark.timeout(400)

PRELUDE = """
import os, sys, time, signal, subprocess
from muster.engines.ray.cluster import joined, check_supply
from muster.errors import OptionError
import ray

@ray.remote(num_cpus=0)
def pid():
    return os.getpid()
"""


@pytest.fixture
def without_token(ray_head, monkeypatch):
    """An environment in this process that knows of no cluster and no token."""
    for name in [name for name in os.environ if name.startswith("RAY_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", ray_head.home)
    return monkeypatch


def three_lines(error):
    assert len(str(error).splitlines()) == 3
    return str(error)


# ---- a cluster that is there


def test_a_cluster_with_a_token_is_joined_and_left_alone_afterwards(ray_head):
    code = """
before = dict(os.environ)
def ours(number, frame):
    print("ours")
signal.signal(signal.SIGTERM, ours)
with joined(sys.argv[1]) as there:
    assert (there.address, there.is_own) == (sys.argv[1], False)
    assert ray.get(pid.remote()) != os.getpid()
    signal.raise_signal(signal.SIGTERM)
    with joined(None) as inner, joined(sys.argv[1].replace("127.0.0.1", "localhost")):
        assert inner.address == sys.argv[1]
    assert ray.is_initialized()
    try:
        with joined("127.0.0.1:1"):
            print("joined another")
    except OptionError as error:
        print(error)
assert not ray.is_initialized()
assert dict(os.environ) == before
os.environ["RAY_ADDRESS"] = sys.argv[1]
with joined() as again:
    print(again.address)
"""
    said = ray_head.driver(PRELUDE + code, ray_head.address).splitlines()
    assert said[0] == "ours"  # Ray's own handler would have ended the process
    assert said[1].startswith("address='127.0.0.1:1' is a different Ray cluster")
    assert said[-1] == ray_head.address


def test_a_cluster_that_wants_a_token_is_not_joined_without_one(ray_head, without_token):
    with pytest.raises(OptionError) as refused:
        look_at(ray_head.address)
    said = three_lines(refused.value)
    assert "requires a token, and none is set" in said and "RAY_AUTH_TOKEN" in said


def test_a_wrong_token_is_refused_with_the_name_of_where_it_came_from(ray_head, without_token):
    file = Path(ray_head.home) / "token"
    file.write_text("wrong")
    without_token.setenv("RAY_AUTH_TOKEN_PATH", str(file))
    with pytest.raises(OptionError) as refused:
        look_at(ray_head.address)
    said = three_lines(refused.value)
    assert "refuses our token" in said and "from RAY_AUTH_TOKEN_PATH" in said


def with_token_file(ray_head, mode, home_mode=0o755):
    """Return an environment in which the token is in a file with that mode."""
    home = Path(tempfile.mkdtemp(dir="/tmp", prefix="th"))
    home.chmod(home_mode)
    (home / ".ray").mkdir()
    file = home / ".ray" / "auth_token"
    file.write_text(ray_head.token)
    file.chmod(mode)
    return file, ray_head.env(HOME=str(home))


@pytest.mark.parametrize(
    ("mode", "home_mode", "is_open"),
    [
        (0o644, 0o755, True),
        pytest.param(0o640, 0o755, True, marks=pytest.mark.slow),
        pytest.param(0o600, 0o755, False, marks=pytest.mark.slow),
        (0o644, 0o700, False),
    ],
)
def test_a_token_that_others_can_read_is_warned_of_with_the_command(
    ray_head, mode, home_mode, is_open
):
    file, env = with_token_file(ray_head, mode, home_mode)
    code = """
import warnings
with warnings.catch_warnings(record=True) as heard:
    warnings.simplefilter("always")
    for _ in range(2):
        with joined(sys.argv[1]):
            pass
for one in heard:
    print(f"{one.category.__name__}: {one.message}")
"""
    try:
        said = ray_head.driver(PRELUDE + code, ray_head.address, env=env).splitlines()
    finally:
        shutil.rmtree(file.parents[1])
    warned = (
        f"MusterWarning: other users of this machine can read the Ray token in {file}, and with "
        f"it run programs on the cluster as you: chmod 600 {file}"
    )
    assert said == ([warned] if is_open else [])


def test_the_command_of_the_docs_makes_a_token_that_only_its_user_can_read(ray_head, tmp_path):
    page = (Path(__file__).parents[3] / "docs" / "ray.md").read_text()
    (command,) = re.findall(r"^(.*ray get-auth-token --generate.*?) +#", page, re.M)
    tmp_path.chmod(0o755)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = ray_head.env(HOME=str(tmp_path), PATH=path)
    done = subprocess.run(
        ["bash", "-c", f"umask 022; {command}"],
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    token = tmp_path / ".ray" / "auth_token"
    assert token.stat().st_mode & 0o777 == 0o600
    assert len(token.read_text()) == 64 and token.read_text() not in done.stdout


def test_a_token_that_its_mode_keeps_back_is_said(ray_head, without_token):
    without_token.setenv("RAY_AUTH_TOKEN", ray_head.token)
    without_token.setenv("RAY_AUTH_MODE", "disabled")
    with pytest.raises(OptionError, match="RAY_AUTH_MODE=disabled"):
        look_at(ray_head.address)


@pytest.mark.parametrize(
    ("name", "other"), [("ray_version", "2.54.0"), ("python_version", "3.12.1")]
)
def test_another_version_on_the_cluster_is_refused_naming_both(
    ray_head, without_token, name, other
):
    code = """
import json, sys
from ray._raylet import GcsClient
client = GcsClient(address=sys.argv[1])
about = client.internal_kv_get(b"CLUSTER_METADATA", namespace=b"cluster")
print(about.decode())
changed = sys.argv[2] or json.dumps({**json.loads(about), sys.argv[3]: sys.argv[4]})
client.internal_kv_put(b"CLUSTER_METADATA", changed.encode(), True, namespace=b"cluster")
"""
    env = ray_head.env(ray_head.token, RAY_AUTH_MODE="token")
    without_token.setenv("RAY_AUTH_TOKEN", ray_head.token)
    was = ray_head.driver(code, ray_head.address, "", name, other, env=env)
    try:
        with pytest.raises(OptionError) as refused:
            look_at(ray_head.address)
    finally:
        ray_head.driver(code, ray_head.address, was, env=env)
    said = three_lines(refused.value)
    package = name.partition("_")[0]
    assert f"has {package} {other}" in said
    assert f"{package} {cluster.my_versions()[package]}" in said


@pytest.mark.parametrize(
    "address", ["", "6379", "head", ":6379", "head:", "head:x", "head:0", "head:70000", "auto"]
)
def test_what_is_no_address_is_refused(address):
    with pytest.raises(OptionError, match="is not an address of a Ray cluster"):
        look_at(address)


def test_an_address_of_ray_client_is_refused_with_what_to_use():
    with pytest.raises(OptionError) as refused:
        look_at("ray://head:10001")
    assert "address='head:6379'" in three_lines(refused.value)


def test_nobody_at_an_address_is_noticed_at_once():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        started = time.monotonic()
        with pytest.raises(OptionError, match="no Ray cluster at") as refused:
            look_at(address)
        assert time.monotonic() - started < 3
    assert "nothing listens" in three_lines(refused.value)


def test_what_listens_and_is_no_ray_is_refused_in_time(monkeypatch):
    monkeypatch.setattr(cluster, "_ASK_SECONDS", 2.0)
    started = time.monotonic()
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        pytest.raises(
            OptionError, match="is not a Ray cluster that this program can join"
        ) as refused,
    ):
        look_at(f"127.0.0.1:{silent.getsockname()[1]}")
    assert time.monotonic() - started < 6
    three_lines(refused.value)


def test_a_machine_that_is_no_node_of_the_cluster_is_told_to_become_one(monkeypatch):
    found = {"auth": False, "token": "none", "ray": None, "python": None, "dashboard": ""}
    monkeypatch.setattr(cluster, "_asked", lambda address: {**found, "is_node": False})
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        with pytest.raises(OptionError, match="is not a node") as refused:
            look_at(address)
    assert f"ray start --address={address}" in three_lines(refused.value)


def test_without_ray_it_is_said_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(OptionError) as refused:
        look_at("127.0.0.1:6379")
    assert install("ray") in three_lines(refused.value)


def test_an_open_dashboard_without_authentication_is_warned_of_once(monkeypatch):
    monkeypatch.setattr(cluster, "_warned", set())
    monkeypatch.setattr(cluster, "_answers", lambda host, port: True)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        for auth, dashboard in [(True, "10.0.0.1:8265"), (False, ""), (False, "127.0.0.1:8265")]:
            cluster._warn_if_open(About("10.0.0.1:6379", auth, dashboard, False))
        assert heard == []
        for _ in range(2):
            cluster._warn_if_open(About("10.0.0.1:6379", False, "10.0.0.1:8265", False))
    (one,) = heard
    assert one.category is MusterWarning
    assert "can run programs" in str(one.message) and "RAY_AUTH_MODE=token" in str(one.message)


# ---- a cluster of our own


def test_a_cluster_of_our_own_is_on_loopback_with_a_token_and_leaves_nothing(ray_head):
    code = """
before = dict(os.environ)
try:
    with joined(None, 2) as own:
        assert own.is_own and own.address.startswith("127.0.0.1:")
        ray.get(pid.remote())
        assert ray.cluster_resources()["CPU"] == 2
        assert os.environ["RAY_AUTH_MODE"] == "token" and len(os.environ["RAY_AUTH_TOKEN"]) == 64
        listening = subprocess.run(["ss", "-ltnpH"], capture_output=True, text=True).stdout
        below = [str(os.getpid())]
        for each in below:
            try:
                with open(f"/proc/{each}/task/{each}/children") as children:
                    below += children.read().split()
            except OSError:  # it has ended
                pass
        mine = [line.split()[3] for line in listening.splitlines()
                if any(f"pid={each}," in line for each in below)]
        assert len(mine) > 3, listening
        assert all("127.0.0.1" in address for address in mine), mine
        print(*below[1:])
        raise ZeroDivisionError
except ZeroDivisionError:
    pass
assert dict(os.environ) == before
assert not ray._raylet.AuthenticationTokenLoader.instance().has_token(ignore_auth_mode=True)
os.environ["RAY_AUTH_TOKEN"] = sys.argv[2]
with joined(sys.argv[1]):
    print(ray.get(pid.remote()))
"""
    env = ray_head.env(TMPDIR="/tmp", RAY_USAGE_STATS_ENABLED="1")  # which is to be so again
    said = ray_head.driver(PRELUDE + code, ray_head.address, ray_head.token, env=env).splitlines()
    assert not any(Path(f"/proc/{each}").exists() for each in said[0].split())
    assert not (Path(ray_head.home) / ".ray").exists()  # where Ray would have kept a token


@pytest.mark.slow
def test_a_cluster_of_our_own_asks_for_a_token_whatever_the_mode_of_others(ray_head):
    """Loopback is open to every user of the machine, so a token is all that keeps them out."""
    code = """
with joined(None, 1) as own:
    asked = subprocess.run([sys.executable, sys.argv[1], own.address], capture_output=True,
                           text=True, env={**os.environ, "RAY_AUTH_TOKEN": ""})
    print(asked.stdout)
assert os.environ["RAY_AUTH_MODE"] == "disabled"
"""
    env = ray_head.env(RAY_AUTH_MODE="disabled")
    said = ray_head.driver(PRELUDE + code, ask.__file__, env=env)
    assert '"auth": true, "token": "none"' in said
    env["RAY_AUTH_TOKEN"] = "the user's own"
    code = 'with joined(None, 1): print(os.environ["RAY_AUTH_TOKEN"])'
    assert len(ray_head.driver(f"{PRELUDE}\n{code}", env=env).strip()) == 64


STAYS = """
class Told(Exception):
    pass
def tell(number, frame):
    raise Told
signal.signal(signal.SIGTERM, tell)
print("begin", flush=True)
try:
    with joined(None, 2):
        @ray.remote(num_cpus=0)
        def busy():
            while True:
                pass
        busy.remote()
        ray.get(pid.remote())
        print("ready", flush=True)
        time.sleep(60)
except Told:
    print("told", flush=True)
    time.sleep(60)
"""


def staying(ray_head):
    return subprocess.Popen(
        [sys.executable, "-c", PRELUDE + STAYS],
        env=ray_head.env(TMPDIR="/tmp"),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def directories_of(driver):
    return list(Path("/tmp").glob(f"muster-{driver.pid}-*"))


def test_nothing_is_left_of_a_cluster_whose_driver_was_killed(ray_head):
    with staying(ray_head) as driver:
        try:
            assert [driver.stdout.readline() for _ in "12"] == ["begin\n", "ready\n"]
            there = descendants(driver.pid)
            assert any("raylet" in command for command in there.values())
            assert any("gcs_server" in command for command in there.values())
            assert any("ray::busy" in command for command in there.values())
            assert len(directories_of(driver)) == 1
        finally:
            driver.kill()
    assert eventually(lambda: not any(Path(f"/proc/{each}").exists() for each in there), 5.0)
    assert directories_of(driver) == []


def test_a_signal_while_the_cluster_starts_ends_what_was_started(ray_head):
    with staying(ray_head) as driver:
        try:
            assert driver.stdout.readline() == "begin\n"
            servers = ("gcs_server", "reaper.py")
            assert eventually(
                lambda: all(
                    any(each in command for command in descendants(driver.pid).values())
                    for each in servers
                ),
                100.0,
            )
            driver.send_signal(signal.SIGTERM)
            assert driver.stdout.readline() == "told\n"
            assert descendants(driver.pid) == {}
            assert directories_of(driver) == []
        finally:
            driver.kill()


# ---- supply


def test_what_is_busy_is_waited_for_and_then_refused(ray_head):
    code = """
@ray.remote(num_cpus=1.5)
class Busy:
    def ready(self):
        pass
with joined(sys.argv[1]):
    check_supply({"node 0": {"num_cpus": 2, "num_gpus": 0}})
    busy = Busy.remote()
    ray.get(busy.ready.remote())
    while ray.available_resources()["CPU"] != 0.5:  # the cluster's view comes a moment later
        time.sleep(0.05)
    started = time.monotonic()
    try:
        check_supply({"node 0 (learner)": {"num_cpus": 1}, "node 1 (actor)": {"num_cpus": 1}})
    except OptionError as error:
        print(error)
    assert time.monotonic() - started > 0.9
    os.environ.pop("MUSTER_RAY_WAIT")
    ray.kill(busy)
    check_supply({"node 0": {"num_cpus": 2}})
    started = time.monotonic()
    try:
        check_supply({f"node {k} (actor)": {"num_cpus": 5, "num_gpus": k == 3} for k in range(4)})
    except OptionError as error:
        print(error)
    assert time.monotonic() - started < 5, "it waited"
"""
    env = ray_head.env(ray_head.token, MUSTER_RAY_WAIT="1")
    said = ray_head.driver(PRELUDE + code, ray_head.address, env=env).splitlines()
    assert said == [
        "2 nodes need 2 CPUs",
        "  why: the cluster has 2 CPUs, and of it free, after 1 s, only 0.5 CPUs",
        '  try: resources={"learner": {"num_cpus": 0.1}}, or MUSTER_RAY_WAIT=600 to wait longer',
        "4 nodes need 20 CPUs and 1 GPU",
        "  why: the cluster has 2 CPUs and 0 GPUs (2 and 0 free)",
        '  try: resources={"actor": {"num_cpus": 0.1}}, or a larger cluster',
    ]


def having(monkeypatch, *machines, free=None):
    each = [dict(machine) for machine in machines]
    monkeypatch.setattr(supply, "_machines", lambda: (each, free or each))
    monkeypatch.setattr(supply, "_WAIT_SECONDS", 0.3)


def test_a_need_that_no_single_machine_can_meet_is_refused(monkeypatch):
    having(monkeypatch, {"CPU": 4.0}, {"CPU": 6.0})
    with pytest.raises(OptionError) as refused:
        check_supply({"node 0": {"num_cpus": 1}, "node 2 (actor)": {"num_cpus": 8}})
    said = three_lines(refused.value)
    assert "node 2 (actor) needs 8 CPUs" in said
    assert "the largest has 6 CPUs, all 2 together 10 CPUs" in said


def test_needs_that_do_not_fit_side_by_side_are_refused(monkeypatch):
    having(monkeypatch, {"CPU": 3.0}, {"CPU": 3.0})
    check_supply({"node 0": {"num_cpus": 2}, "node 1": {"num_cpus": 2}, "node 2": {"num_cpus": 1}})
    with pytest.raises(OptionError) as refused:
        check_supply({f"node {k}": {"num_cpus": 2} for k in range(3)})
    said = three_lines(refused.value)
    assert "3 nodes need 6 CPUs" in said
    assert "does not fit side by side on the cluster's machines, which have 3 CPUs; 3 CPUs" in said


def test_needs_of_several_kinds_find_their_machines(monkeypatch):
    having(monkeypatch, {"CPU": 4.0, "GPU": 1.0}, {"CPU": 4.0})
    # The one with most CPUs must not take the machine with the GPU.
    check_supply({"node 0": {"num_cpus": 1, "num_gpus": 1}, "node 1": {"num_cpus": 4}})


def test_memory_and_resources_of_ones_own_are_named(monkeypatch):
    having(monkeypatch, {"CPU": 4.0, "memory": 2.0**31, "blue": 1.0})
    with pytest.raises(OptionError) as refused:
        check_supply({"node 0": {"memory": 2**33, "blue": 1}})
    said = three_lines(refused.value)
    assert "node 0 needs 1 of 'blue' and 8 GiB of memory" in said
    assert "the cluster has 1 of 'blue' and 2 GiB of memory" in said
    assert f'resources={{0: {{"memory": {2**31}}}}}' in said


def test_a_cluster_that_may_grow_is_asked_to_and_waited_for(monkeypatch):
    now = [{"CPU": 1.0}]
    asked = []
    monkeypatch.setattr(supply, "_machines", lambda: (now, now))
    monkeypatch.setattr(supply, "_ask_to_grow", lambda bundles: asked.append(list(bundles)))
    monkeypatch.setattr(supply.time, "sleep", lambda seconds: now.append({"CPU": 8.0}))
    monkeypatch.setenv("MUSTER_RAY_WAIT", "5")
    check_supply({"node 0": {"num_cpus": 8}})
    assert asked == [[{"CPU": 8.0}], []]


@pytest.mark.parametrize("seconds", ["x", "-1", "nan", "inf"])
def test_a_wait_that_is_no_time_is_refused(monkeypatch, seconds):
    monkeypatch.setenv("MUSTER_RAY_WAIT", seconds)
    with pytest.raises(OptionError, match="MUSTER_RAY_WAIT"):
        check_supply({})


# ---- versions


def test_a_worker_with_other_versions_is_refused_naming_both():
    mine = {"muster": "0.1.0", "python": "3.11.7", "ray": "2.60.0"}
    check_versions(mine, "node 1", mine)
    with pytest.raises(OptionError) as refused:
        check_versions({**mine, "muster": "0.2.0", "ray": "2.59.0"}, "node 1 (actor)", mine)
    said = three_lines(refused.value)
    assert "node 1 (actor) has muster 0.2.0, ray 2.59.0" in said
    assert "muster 0.1.0, ray 2.60.0" in said
    assert "pip install muster-rl==0.1.0 ray==2.60.0" in said
    check_versions(cluster.my_versions())
