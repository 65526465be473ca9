"""A run says how close to the limit it was, and training is not changed by it."""

import json
from types import SimpleNamespace

import pytest

from muster.algos.ppo_config import PPOConfig
from muster.framework import Context
from muster.recipes.bench import BenchReport, advice
from muster.recipes.job import Job
from muster.recipes.options import TrainOptions
from muster.recipes.speed import InStepWork, Speed, calibration_seconds
from muster.recipes.train import train

LOOP = 128 * 4
"""Environment steps of a loop."""
SMALL = {"num_envs": 4, "rollout": 16, "hidden": (8,), "eval_every": 64, "eval_episodes": 1}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("loops", [1, 3])
def test_result_json_has_rho_eta_and_what_limits(tmp_path, workers, loops):
    told = {**SMALL, "env_steps": loops * 64, "workers": workers, "quiet": True, "stop_at": None}
    train("ppo", "CartPole-v1", run_dir=str(tmp_path / "run"), **told)
    written = json.loads((tmp_path / "run" / "result.json").read_text())
    assert written["rho"] > 0 and written["eta"] > 0
    assert written["limited_by"] in written["speed"]["split"]
    assert written["speed"]["epochs"] == 4


@pytest.mark.parametrize("workers", [0, 3])
def test_a_run_with_replay_counts_the_samples_of_its_updates(tmp_path, workers):
    told = {
        "num_envs": 4,
        "hidden": (8,),
        "learning_starts": 256,
        "batch_size": 32,
        "train_every": 64,
        "updates_per_train": 16,
        "env_steps": 4_096,
        "eval_every": 0,
        "eval_episodes": 1,
        "stop_at": None,
        "quiet": True,
    }
    run = tmp_path / "run"
    train("dqn", "CartPole-v1", run_dir=str(run), workers=workers, **told)
    written = json.loads((run / "result.json").read_text())
    speed = written["speed"]
    assert written["rho"] > 0 and written["eta"] > 0
    assert written["limited_by"] in speed["split"]
    assert speed["epochs"] == pytest.approx(16 * 32 / 64, rel=0 if not workers else 0.3)
    assert (speed["split"]["env"] > 0 and speed["split"]["act"] > 0) == (workers == 0)
    assert (speed["split"]["exchange"] > 0) == (workers > 0)


def a_worker(is_first=True, size=1):
    worker = SimpleNamespace(
        rollouts=SimpleNamespace(actor=SimpleNamespace(env_seconds=0.0, act_seconds=0.0)),
        group=SimpleNamespace(learn_seconds=0.0, wait_seconds=0.0),
        team=SimpleNamespace(index=0 if is_first else 1, size=size),
        agent=SimpleNamespace(train_iter=0, threads=1, passes_of_sample=3.0),
        is_first=is_first,
    )
    return worker


def a_speed(worker, job=None):
    job = job or a_job()
    return Speed(InStepWork(worker, job), job)


def do_loop(worker, speed, seconds, apart, finish=False):
    """Have a loop that took `seconds`, some of them in middleware that is not training."""
    speed._timer.summary = lambda: {name: {"last": spent} for name, spent in apart.items()}
    worker.rollouts.actor.env_seconds += 2
    worker.group.learn_seconds += 1
    worker.agent.train_iter += 8
    ctx = Context()
    ctx.finish = finish
    ctx.env_step = worker.agent.train_iter // 8 * LOOP
    speed.end_loop(ctx, seconds)


def a_job(**options):
    cfg = PPOConfig(minibatches=4)
    return Job("ppo", "CartPole-v1", cfg, TrainOptions(num_envs=4, **options), 0, "x", None)


def test_evaluations_checkpoints_and_the_first_loop_are_not_training():
    worker = a_worker()
    speed = a_speed(worker)
    do_loop(worker, speed, 1000, {})
    do_loop(worker, speed, 4, {"_learn": 1})
    do_loop(worker, speed, 12, {"_evaluate": 7, "_checkpoint": 1}, finish=True)
    found = speed.measured()
    assert found["speed"]["steps_per_s"] == 2 * LOOP / 8
    assert found["speed"]["split"]["env"] == pytest.approx(4 / 8)
    assert found["speed"]["split"]["learn"] == pytest.approx(2 / 8)
    assert found["speed"]["split"]["rest"] == pytest.approx(2 / 8)
    assert found["speed"]["epochs"] == 2  # 8 updates a loop, 4 minibatches
    assert found["limited_by"] == "env"


def test_the_only_loop_counts():
    worker = a_worker()
    speed = a_speed(worker)
    do_loop(worker, speed, 5, {}, finish=True)
    assert speed.measured()["speed"]["steps_per_s"] == LOOP / 5


def test_loops_before_the_first_update_are_not_training():
    worker = a_worker()
    speed = a_speed(worker)
    speed._timer.summary = dict
    for env_step in (1, 2):
        speed.end_loop(Context(env_step=env_step, finish=False), 1000)
    do_loop(worker, speed, 1000, {})
    do_loop(worker, speed, 4, {}, finish=True)
    assert speed.measured()["speed"]["steps_per_s"] == LOOP / 4


def test_an_environment_that_cannot_be_made_again_does_not_fail_the_run(monkeypatch):
    def refuse(*args, **kwargs):
        raise OSError("the port is taken")

    worker, job = a_worker(), a_job()
    monkeypatch.setattr(type(job), "make_envs", refuse)
    speed = a_speed(worker, job)
    do_loop(worker, speed, 5, {}, finish=True)
    found = speed.measured()
    assert found["limited_by"] == "env" and "eta" not in found and "rho" not in found


def test_a_run_without_a_loop_has_nothing_to_say():
    assert a_speed(a_worker()).measured() == {}


def test_workers_without_a_core_of_their_own_leave_calibration_to_the_first():
    worker = a_worker(is_first=False, size=4096)
    speed = a_speed(worker)
    do_loop(worker, speed, 5, {}, finish=True)
    assert speed.measured() == {}


@pytest.mark.parametrize(
    ("trained", "seconds"),
    [(0, 0.15), (1, 0.15), (10, 0.5), (20, 1.0), (40, 1.0), (75, 1.5), (1e6, 2.0)],
)
def test_calibration_takes_little_of_a_run(trained, seconds):
    assert calibration_seconds(trained) == pytest.approx(seconds)


def a_report(**changes):
    numbers = {
        "algo": "ppo",
        "env": "CartPole-v1",
        "workers": 2,
        "num_envs": 8,
        "env_steps": 1000,
        "steps_per_s": 40_000.0,
        "bare_steps_per_s": 100_000.0,
        "bound_steps_per_s": 80_000.0,
        "rho": 0.4,
        "eta": 0.5,
        "split": {"env": 0.4, "act": 0.3, "learn": 0.2, "exchange": 0.05, "rest": 0.05},
        "limited_by": "env",
        "advice": None,
        "details": {"cores": 2},
    }
    return BenchReport(**{**numbers, **changes})


@pytest.mark.parametrize(
    ("report", "machine", "said"),
    [
        (a_report(), {}, None),
        (a_report(limited_by="learn"), {}, None),
        (a_report(workers=4), {}, "--workers 2"),
        (a_report(), {"busy_elsewhere": 0.4}, "other programs used the cores 40 %"),
        (a_report(), {"cores": 8}, "--workers 4"),
        (a_report(workers=0), {}, "--workers 2"),
        (a_report(workers=0), {"slots": 1}, None),
        (a_report(num_envs=6), {"slots": 3}, "--slots 4 --num-envs 8: "),
        (a_report(limited_by="exchange"), {}, "--num-envs 32"),
        (a_report(limited_by="act"), {}, "--num-envs 32"),
        (a_report(limited_by="rest"), {}, "--num-envs 32"),
        (a_report(limited_by="act", num_envs=64), {}, None),
    ],
)
def test_advice_is_given_where_something_obvious_helps(report, machine, said):
    given = advice(report, **{"slots": 4, "cores": 2, "busy_elsewhere": 0.0, **machine})
    assert (given is None) if said is None else given.startswith(said)
