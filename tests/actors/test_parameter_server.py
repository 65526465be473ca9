"""Weights by version, and gradients that are each applied once."""

import threading
import time

import numpy as np
import pytest
from safetensors.numpy import load_file

from muster.actors import BlockError, ParameterServer, finish
from muster.actors.calls import Call
from muster.errors import OptionError

ONE = np.ones(3, np.float32)


def send(server, sequence, learner=0, incarnation=1, version=1, gradient=ONE):
    return server.push_gradients(
        {"w": gradient},
        learner=learner,
        incarnation=incarnation,
        sequence=sequence,
        version=version,
    )


@pytest.fixture(scope="module")
def server(ray):
    """A server that several tests look at; none of them minds what others pushed."""
    return ParameterServer({"w": np.zeros(3, np.float32), "b": np.zeros((2, 2), np.float32)}, 0.1)


def test_versions_only_rise_and_are_pulled_when_newer(server):
    first = server.pull()
    assert server.pull(newer_than=first.version) is None
    version = server.push({"w": ONE, "b": np.full((2, 2), 5.0)})
    assert version > first.version
    pulled = server.pull(newer_than=first.version)
    assert pulled.version == version and pulled.weights["w"].tolist() == [1, 1, 1]
    assert server.get_weights()["b"].tolist() == [[5, 5], [5, 5]]
    assert server.pull(newer_than=version + 7) is None


def test_a_pull_may_wait_for_what_is_newer(server):
    version = server.pull().version
    later = threading.Timer(0.3, server.push, [server.get_weights()])
    later.daemon = True
    later.start()
    assert server.pull(newer_than=version, timeout=20).version == version + 1
    began = time.monotonic()
    assert server.pull(newer_than=version + 1, timeout=0.2) is None
    assert 0.2 <= time.monotonic() - began < 5


def test_many_readers_of_a_version_share_one_object(ray):
    server = ParameterServer({"w": np.zeros(100_000, np.float32)})  # large enough for shared memory
    refs = [ray.get(server.actor.pull.remote(0, 0))[1][0] for _ in range(3)]
    assert len(set(refs)) == 1
    pulled = server.pull().weights["w"]
    assert not pulled.flags.writeable
    assert np.shares_memory(pulled, server.pull().weights["w"])
    server.push({"w": np.ones(100_000, np.float32)})
    assert ray.get(server.actor.pull.remote(0, 0))[1][0] not in refs
    assert pulled.max() == 0  # who still reads an old version reads it undisturbed


def test_weights_live_as_long_as_the_server_whoever_pushed_them(ray, server):
    class Pusher:
        def push(self, server):
            return server.push({"w": np.full(3, 7.0), "b": np.zeros((2, 2))})

    pusher = ray.remote(Pusher).options(num_cpus=0).remote()
    version = ray.get(pusher.push.remote(server))
    ray.kill(pusher)
    pulled = server.pull()
    assert pulled.version == version and pulled.weights["w"].tolist() == [7, 7, 7]


def test_a_gradient_sent_again_is_not_applied_again(ray):
    server = ParameterServer({"w": np.zeros(3)}, lr=0.1)
    first = send(server, 1)
    assert first.version == 2 and np.allclose(first.weights["w"], -0.1)
    again = send(server, 1)
    assert again.version == 2 and np.allclose(again.weights["w"], -0.1)
    other = send(server, 1, learner=1, version=2)
    assert other.version == 3 and np.allclose(other.weights["w"], -0.2)
    born_again = send(server, 1, incarnation=2, version=3)
    assert born_again.version == 4
    with pytest.raises(BlockError, match="learner 0 was replaced"):
        send(server, 2, incarnation=1)
    with pytest.raises(BlockError, match="arrived after 1"):
        send(server, 3, incarnation=2)
    counts = server.counts()
    assert (counts["gradients"], counts["repeated"]) == (3, 1)
    assert counts["applied"] == {0: 2, 1: 1} and counts["lag_max"] == 0


def test_gradients_that_make_no_sense_change_nothing(server):
    before = server.pull().version
    with pytest.raises(BlockError, match="no weights for a gradient 'w' \\(2,\\)"):
        send(server, 1, learner=9, gradient=np.ones(2))
    with pytest.raises(BlockError, match="not finite"):
        send(server, 1, learner=9, gradient=np.array([1, np.nan, 1], np.float32))
    assert server.pull().version == before
    with pytest.raises(BlockError, match=r"ParameterServer\(weights, lr="):
        send(ParameterServer({"w": ONE}), 1)
    with pytest.raises(OptionError, match="arrays by name"):
        ParameterServer([ONE])


@pytest.mark.slow
def test_a_learner_that_is_far_ahead_waits_for_the_slow_one(ray):
    server = ParameterServer({"w": np.zeros(3)}, lr=0.1, max_lag=2)
    slow, fast = server.join(0, 1), server.join(1, 1)
    assert slow.version == fast.version == 1
    version = fast.version
    for sequence in (1, 2):
        version = send(server, sequence, learner=1, version=version).version
    third = server.actor.push_gradients.remote({"w": ONE}, 1, 1, 3, version)
    assert ray.wait([third], timeout=0.5)[0] == []
    assert send(server, 1, learner=0, version=1).version == 4
    assert finish([Call("third", third)], timeout=20)[0][0] == 5
    assert server.counts()["lag_max"] == 2
    version = send(server, 4, learner=1, version=5).version
    fifth = server.actor.push_gradients.remote({"w": ONE}, 1, 1, 5, version)
    assert ray.wait([fifth], timeout=0.3)[0] == []
    server.leave(0, 1)  # nobody waits for a learner that has left
    assert ray.get(fifth, timeout=20)[0] == version + 1
    with pytest.raises(BlockError, match="max_lag=3"):
        for learner in range(2, 5):
            server.join(learner, 1)


def test_weights_are_saved_without_pickle(server, tmp_path):
    server.push({"w": np.full(3, 2.5), "b": np.zeros((2, 2))})
    path = server.save_weights(tmp_path / "cartpole")
    assert path == tmp_path / "cartpole.safetensors"
    assert load_file(path)["w"].tolist() == [2.5, 2.5, 2.5]
    assert [each.name for each in tmp_path.iterdir()] == ["cartpole.safetensors"]
