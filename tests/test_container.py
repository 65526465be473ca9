"""What a container allows, from trees of files as Docker, systemd and Kubernetes make them."""

import os
import resource
from pathlib import Path

import pytest

from muster import container
from muster.container import Limit

MACHINE = 2**40


class Tree:
    """A /proc and mounted control groups."""

    def __init__(self, place):
        self.place = place
        self.proc = place / "proc"
        (self.proc / "self").mkdir(parents=True)
        (self.proc / "meminfo").write_text(
            f"MemTotal: {MACHINE // 1024} kB\nMemAvailable: {MACHINE // 2048} kB\n"
        )
        self._groups, self._mounts = [], []

    def v2(self, path, root="/"):
        self._groups.append(f"0::{path}")
        return self._mount("cgroup2", "rw", root, "unified")

    def v1(self, controllers, path, root="/"):
        self._groups.append(f"{len(self._groups) + 1}:{controllers}:{path}")
        return self._mount("cgroup", f"rw,{controllers}", root, controllers)

    def _mount(self, kind, options, root, name):
        mount = self.place / "cgroup" / name
        mount.mkdir(parents=True, exist_ok=True)
        self._mounts.append(f"31 23 0:28 {root} {mount} rw,relatime - {kind} {kind} {options}")
        (self.proc / "self" / "cgroup").write_text("\n".join(self._groups) + "\n")
        (self.proc / "self" / "mountinfo").write_text("\n".join(self._mounts) + "\n")
        return mount


def put(group, **files):
    group.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (group / name.replace("__", ".")).write_text(f"{text}\n")


@pytest.fixture
def tree(tmp_path):
    return Tree(tmp_path)


def here():
    return float(len(os.sched_getaffinity(0)))


def test_without_a_container_it_is_the_machine(tree):
    assert container.memory(tree.proc) == Limit(MACHINE, "the memory of this machine")
    assert container.free_memory(tree.proc) == MACHINE // 2
    assert container.cores(tree.proc) == here()
    assert container.memory_kills(tree.proc) is None


def test_v2_with_a_name_space_of_its_own(tree):
    group = tree.v2("/")
    put(group, memory__max=2**30, memory__current=2**28, cpu__max="50000 100000")
    put(group, memory__stat=f"anon 1\ninactive_file {2**27}", pids__max=100, pids__current=40)
    put(group, memory__events="low 0\noom 9\noom_kill 3")
    left = 2**30 - (2**28 - 2**27)
    assert container.memory(tree.proc) == Limit(left, "what the container has left of 1.0 GiB")
    assert container.free_memory(tree.proc) == left
    assert container.cores(tree.proc) == 0.5
    assert container.processes(tree.proc) == Limit(
        60, "what the container has left of 100 processes"
    )
    assert container.memory_kills(tree.proc) == 3


def test_v2_where_the_tightest_is_somewhere_above(tree):
    group = tree.v2("/system.slice/a.service/inner")
    put(group, memory__max=2**34)
    put(group / "system.slice", memory__max=2**32, memory__current=2**31, pids__max="max")
    put(group / "system.slice" / "a.service", memory__max="max", cpu__max="max 100000")
    inner = group / "system.slice" / "a.service" / "inner"
    put(inner, memory__max=2**33, memory__current=0, cpu__max="10000 100000")
    assert container.memory(tree.proc).amount == 2**31
    assert container.cores(tree.proc) == 0.1


def test_v1_as_docker_mounts_it_under_the_hosts_name(tree):
    memory = tree.v1("memory", "/docker/1234", root="/docker/1234")
    cpu = tree.v1("cpu,cpuacct", "/docker/1234", root="/docker/1234")
    pids = tree.v1("pids", "/docker/1234", root="/docker/1234")
    put(memory, memory__limit_in_bytes=2**30, memory__usage_in_bytes=2**29)
    put(memory, memory__stat=f"inactive_file 1\ntotal_inactive_file {2**28}")
    put(memory, memory__oom_control="oom_kill_disable 0\nunder_oom 0\noom_kill 7")
    put(cpu, cpu__cfs_quota_us=150000, cpu__cfs_period_us=100000)
    put(pids, pids__max=32, pids__current=30)
    assert container.memory(tree.proc).amount == 2**30 - (2**29 - 2**28)
    assert container.cores(tree.proc) == min(1.5, here())
    assert container.processes(tree.proc).amount == 2
    assert container.memory_kills(tree.proc) == 7


def test_v1_without_limits(tree):
    memory, cpu = tree.v1("memory", "/"), tree.v1("cpu", "/user")
    put(memory, memory__limit_in_bytes=9223372036854771712, memory__usage_in_bytes=1)
    put(cpu / "user", cpu__cfs_quota_us=-1, cpu__cfs_period_us=100000)
    assert container.memory(tree.proc) == Limit(MACHINE, "the memory of this machine")
    assert container.cores(tree.proc) == here()


def test_a_hybrid_of_both_where_v1_has_the_controllers(tree):
    tree.v2("/")
    memory = tree.v1("memory", "/pod/1")
    put(memory / "pod" / "1", memory__limit_in_bytes=2**29, memory__usage_in_bytes=0)
    assert container.memory(tree.proc).amount == 2**29


def test_odd_files_are_no_limit(tree):
    group = tree.v2("/a\tb")
    put(group, memory__max="", cpu__max="nonsense", pids__max="max")
    (tree.proc / "self" / "cgroup").write_text("nonsense\n0::/\n::\n")
    assert container.memory(tree.proc) == Limit(MACHINE, "the memory of this machine")
    assert container.cores(tree.proc) == here()


def test_this_process_here_is_read_without_an_error():
    assert container.memory().amount > 0
    assert container.free_memory() is None or container.free_memory() >= 0
    assert 0 < container.cores() <= (os.cpu_count() or 1)
    container.processes()
    container.memory_kills()


def test_a_limit_of_the_user_counts_all_threads_but_not_for_root(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda which: (10_000, 10_000))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    limit = container.processes(Path("/proc"))
    threads = len(os.listdir("/proc/self/task"))
    assert 0 < limit.amount <= 10_000 - threads
    assert limit.by == "what this user has left of 10000 processes (ulimit -u)"
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    found = container.processes(Path("/proc"))
    assert found is None or "user" not in found.by
