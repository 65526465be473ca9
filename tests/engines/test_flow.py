"""Weights, gradients and experience between nodes, on every engine."""

import os

import flow_programs
import numpy as np
import pytest

pytestmark = pytest.mark.timeout(600)


def test_readers_see_whole_versions_that_only_rise_and_the_newest_in_the_end(run):
    _, *readers = run(flow_programs.pushes_versions, 300, n=3)
    for seen in readers:
        assert seen == sorted(seen)
        assert all(value == train_iter for _, value, train_iter in seen)
        assert seen[-1][1] == 300


def test_only_home_pushes_weights(run):
    version, refusal = run(flow_programs.pushes_from_everywhere, n=2)
    assert version == 1
    assert "push_gradients" in refusal and "why:" in refusal


def test_every_gradient_is_used_exactly_once(run):
    assert run(flow_programs.applies_gradients_once, 50, n=3)[0] == 2 * sum(range(1, 51))


def test_a_sum_of_gradients_has_the_same_bits_on_every_member_and_in_every_run(run):
    first = run(flow_programs.sums_rows, (0, 1, 2), 10, n=3)
    assert first[0] == first[1] == first[2]
    rows = [np.random.default_rng(node) for node in range(3)]
    for summed in first[0]:
        for rng in rows:
            rng.random()
        a, b, c = (rng.standard_normal(5000).astype(np.float32) for rng in rows)
        assert summed == ((a + b) + c).tobytes()


def test_the_order_of_members_is_the_order_of_addition(run):
    forth = run(flow_programs.sums_rows, (0, 1, 2), 2, n=3)[0]
    back = run(flow_programs.sums_rows, (2, 1, 0), 2, n=3)[0]
    assert forth != back
    np.testing.assert_allclose(
        np.frombuffer(forth[0], np.float32), np.frombuffer(back[0], np.float32), atol=1e-5
    )


def test_replay_at_home_mixes_no_two_actors_and_keeps_samples_per_insert(run):
    (found, _), *waited = run(flow_programs.feeds_replay, 200, 32, n=3)
    assert found["next"] and found["node"]
    assert len(found["ratio"]) == 40
    samples, inserts = found["ratio"][-1]
    assert abs((inserts - 32) * 2.0 - samples) <= 64 + 32
    assert all(seconds > 0 for seconds in waited)  # who pushes faster than is sampled has to wait


def test_node_0_shows_the_times_of_all_nodes(run):
    shown, nothing = run(flow_programs.times_steps, n=2)
    assert "node 1: work" in shown and "whole loop" in shown
    assert nothing == ""


def test_nodes_share_the_cores_and_are_bound_to_their_own_when_asked(engine, run, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    cores = sorted(os.sched_getaffinity(0))
    each = max(1, len(cores) // 2)
    threads = each if engine == "local" else 1  # on Ray a node has the CPUs that it asked for
    assert run(flow_programs.cores_and_threads, n=2) == [(cores, threads)] * 2
    first, second = run(flow_programs.cores_and_threads, n=2, runner={"pin": True, "threads": 3})
    assert first[1] == second[1] == 3
    assert len(first[0]) == len(second[0]) == each
    assert len(cores) == 1 or not set(first[0]) & set(second[0])


def test_two_replay_buffers_of_one_program_keep_their_own(run):
    assert run(flow_programs.two_buffers, 3)[0] == [[0], [1]]


def test_a_second_opener_of_a_name_is_refused_on_every_node(run):
    for said in run(flow_programs.opens_twice):
        assert set(said) == {"channel", "server", "sum", "replay"}
        assert all("is opened twice on this node" in error for error in said.values())
