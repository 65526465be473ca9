"""What a `ClusterWatch` does once a cluster is lost; tests with real clusters are beside this."""

import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest

ray = pytest.importorskip("ray")

from muster.engines.ray import watch as module  # noqa: E402
from muster.engines.ray.watch import ClusterWatch  # noqa: E402


@pytest.fixture
def head():
    """A process in the place of a head."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def test_a_head_that_has_ended_is_not_asked_any_more(monkeypatch, head):
    """Ray's client waits for a head that is gone, and nothing can end that wait."""
    asked = threading.Event()
    for_ever = threading.Event()

    def client(address):
        asked.set()
        for_ever.wait(60)

    core = SimpleNamespace(NodeID=ray.NodeID, GcsClient=client)
    monkeypatch.setattr(module, "_ASK_EVERY", 0.5)
    monkeypatch.setattr(module.importlib, "import_module", lambda name: core)
    monkeypatch.setattr(module, "servers_here", lambda *_: {"gcs_server": head.pid})
    here = SimpleNamespace(get_node_id=lambda: ray.NodeID.from_random().hex())
    fake = SimpleNamespace(get_runtime_context=lambda: here, exceptions=ray.exceptions)
    head.kill()
    watch = ClusterWatch(fake, "127.0.0.1:1", is_own=True)
    try:
        for thread in watch._threads:
            thread.join(10)
        assert watch.is_lost()
        assert not asked.is_set()
    finally:
        for_ever.set()
        watch.close()
    assert not any(thread.is_alive() for thread in watch._threads)
