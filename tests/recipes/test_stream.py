"""Unrolls in a run: each is learnt from once, none is too old, and one process is repeatable."""

import json
import signal
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
import stream_witness
from test_dqn_nodes import env_steps, kill_and_finish, wait_until
from test_dqn_nodes import start as start_nodes

import muster
from muster.recipes import algorithms

LEARNER, EVALUATOR, ACTOR = 0, 1, 2
SMALL = {
    "env_steps": 1_024,
    "num_envs": 4,
    "unroll": 8,
    "batch_unrolls": 2,
    "hidden": (16, 16),
    "stop_at": None,
    "eval_every": 0,
    "eval_episodes": 1,
    "checkpoint_every": 256,
    "quiet": True,
}


@pytest.fixture
def witness(monkeypatch, tmp_path):
    """Have nodes find the witness, and return what it has learnt from: steps by environment."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    monkeypatch.chdir(Path(__file__).parent)
    monkeypatch.setattr(algorithms, "_own", {})
    notes = tmp_path / "notes"
    monkeypatch.setenv(stream_witness.NOTES, str(notes))

    def steps():
        found = defaultdict(list)
        for process, env, step in np.fromfile(notes, np.float32).reshape(-1, 3).astype(int):
            found[process, env].append(int(step))
        return found

    return steps


def metrics_of(run, name):
    lines = (json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines())
    return [line[name] for line in lines if name in line]


@pytest.mark.parametrize(
    ("algo", "model", "env"),
    [
        ("impala", None, "CartPole-v1"),
        ("impala", "lstm", "CartPole-v1"),
        ("impala", "lstm", "Pendulum-v1"),
        ("appo", None, "Pendulum-v1"),
        ("appo", "gru", "CartPole-v1"),
    ],
)
def test_one_process_comes_to_the_same_policy_and_so_does_a_resumed_run(tmp_path, algo, model, env):
    options = {**SMALL, "model": model, "normalize_obs": model is None}
    whole = muster.train(algo, env, run_dir=str(tmp_path / "a"), **options)
    half = {**options, "env_steps": 512}
    first = muster.train(algo, env, run_dir=str(tmp_path / "b"), **half)
    resumed = muster.resume(tmp_path / "b", env_steps=1_024, quiet=True)
    assert (whole.env_steps, whole.train_iter) == (1_024, 16)
    assert first.policy_sha256 != resumed.policy_sha256 == whole.policy_sha256


@pytest.mark.timeout(600)
@pytest.mark.parametrize("workers", [0, 4])
def test_every_step_is_learnt_from_exactly_once_and_in_order(tmp_path, witness, workers):
    result = muster.train(
        "stream_witness:witness", "stream_witness:Numbered-v0", workers=workers, max_lag=3,
        run_dir=str(tmp_path / "run"), **SMALL,
    )  # fmt: skip
    assert result.env_steps == 1_024 == result.train_iter * 8 * 2 * 4
    found = witness()
    assert sum(map(len, found.values())) == 1_024
    assert len(found) == 4 * max(1, workers - 2)
    for steps in found.values():
        assert sorted(steps) == list(range(len(steps)))
    lags = metrics_of(tmp_path / "run", "lag/most")
    assert lags and max(lags) <= (3 if workers else 0)
    assert set(metrics_of(tmp_path / "run", "stream/unrolls")) == {2}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("slow", ["learner", "actor"])
@pytest.mark.parametrize(("workers", "max_lag"), [(3, 1), (4, 1), (6, 3), (6, 7)])
def test_the_bound_holds_with_a_learner_or_actors_ten_times_as_slow(
    tmp_path, witness, monkeypatch, slow, workers, max_lag
):
    monkeypatch.setenv(stream_witness.SLOW, slow)
    options = {**SMALL, "env_steps": 6_400, "batch_unrolls": 1, "max_lag": max_lag}
    result = muster.train(
        "stream_witness:witness", "stream_witness:Numbered-v0", workers=workers,
        run_dir=str(tmp_path / "run"), **options,
    )  # fmt: skip
    assert result.env_steps == 6_400
    assert max(metrics_of(tmp_path / "run", "lag/most")) <= max_lag
    assert all(sorted(steps) == list(range(len(steps))) for steps in witness().values())


@pytest.mark.timeout(600)
@pytest.mark.parametrize("algo", ["impala", pytest.param("appo", marks=pytest.mark.slow)])
def test_one_process_learns_to_balance(tmp_path, algo):
    result = muster.train(algo, "CartPole-v1", run_dir=str(tmp_path / "run"), quiet=True)
    assert result.eval_return_mean >= 475 and result.stopped_by == "target"


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("algo", "workers"),
    [
        pytest.param("impala", 3, marks=pytest.mark.slow),
        pytest.param("impala", 4, marks=pytest.mark.slow),
        pytest.param("appo", 3, marks=pytest.mark.slow),
    ],
)
def test_an_actor_and_a_learner_learn_to_balance(tmp_path, algo, workers):
    run = tmp_path / "run"
    result = muster.train(algo, "CartPole-v1", workers=workers, run_dir=str(run), quiet=True)
    assert result.eval_return_mean >= 475 and result.stopped_by == "target"
    again = muster.workers.evaluate_policy(muster.load_policy(run), "CartPole-v1", 100, result.seed)
    assert again.mean == result.eval_return_mean


def start(folder, *options):
    """Start `muster train impala CartPole-v1` with two actors."""
    limits = ("--env-steps", "120000", "--stop-at", "1000", "--checkpoint-every", "2000")
    return start_nodes(folder, *limits, "--eval-episodes", "10", *options, algo="impala")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("bound", [(), ("--max-lag", "1")], ids=["free", "bounded"])
@pytest.mark.parametrize("role", [LEARNER, EVALUATOR, ACTOR])
def test_a_killed_node_is_replaced_and_nobody_waits_for_it(tmp_path, role, bound):
    driver = start(tmp_path, *bound)
    run = tmp_path / "run"
    result = kill_and_finish(driver, run, role, after=8_000)
    assert result["env_steps"] >= 120_000 and result["replacements"] == 1
    if bound and role != LEARNER:
        assert max(metrics_of(run, "lag/most")) <= 1


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_signal_saves_and_the_run_goes_on_with_other_workers(tmp_path):
    driver = start(tmp_path)
    run = tmp_path / "run"
    wait_until(lambda: env_steps(run) > 4_000)
    driver.send_signal(signal.SIGTERM)
    out, _ = driver.communicate(timeout=300)
    assert driver.returncode == 128 + signal.SIGTERM, out
    saved = muster.run.RunDirectory.open(run).checkpoints.load().counters["env_step"]
    for workers in (3, 0):
        saved += 2_560
        resumed = muster.resume(run, env_steps=saved, workers=workers, stop_at=None, quiet=True)
        assert resumed.env_steps >= saved


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workers": 2}, "workers=2 is not possible"),
        ({"workers": 6, "max_lag": 2}, "max_lag=2 and workers=6 contradict each other"),
        ({"workers": 7, "batch_unrolls": 2, "max_lag": 1}, "max_lag=1 and workers=7"),
        ({"max_lag": -1}, "max_lag=-1 is not possible"),
        ({"unroll": 0}, "unroll=0 is not possible"),
        ({"batch_unrolls": 0}, "batch_unrolls=0 is not possible"),
        ({"rho_bar": 0.0}, "rho_bar=0.0 is not possible"),
        ({"c_bar": -1.0}, "c_bar=-1.0 is not possible"),
        ({"vtrace_lambda": 1.5}, "vtrace_lambda=1.5 is not possible"),
        ({"clip": 0.0}, "clip=0.0 is not possible"),
        ({"model": "lstm", "hidden": ()}, "model=lstm and hidden=() contradict each other"),
    ],
)
def test_options_that_cannot_be_are_refused_in_three_lines(tmp_path, options, message):
    with pytest.raises(muster.OptionError) as error:
        muster.train("appo", "CartPole-v1", run_dir=str(tmp_path / "run"), **options)
    what, why, fix = error.value.args
    assert what.startswith(message) and why and "=" in fix
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("workers", "batch", "least"), [(6, 1, 3), (7, 2, 2), (4, 8, 0)])
def test_the_bound_that_a_message_names_is_one_that_can_be_kept(workers, batch, least):
    config = algorithms.configuration_of("impala")
    config(batch_unrolls=batch, max_lag=least).check_run(workers, 8)
    if least:
        with pytest.raises(muster.OptionError, match=f"max_lag={least}"):
            config(batch_unrolls=batch, max_lag=least - 1).check_run(workers, 8)
