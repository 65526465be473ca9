"""`muster.plan` from Python: its table, its sources of costs, and what it rejects."""

import json
from dataclasses import replace

import pytest

import muster
from muster import OptionError
from muster.planning.calibrate import calibrate, read_costs, write_costs
from muster.planning.costs import Affine, RunCosts
from muster.planning.exchange_time import measure_exchange
from muster.recipes.algorithms import ALGORITHMS
from muster.recipes.settings import resolve
from muster.recipes.train import train

LINE = Affine(1e-5, 1e-6)
TINY = {"num_envs": 4, "hidden": (8,), "eval_every": 0, "eval_episodes": 1, "quiet": True}


def costs_of(algo, env="CartPole-v1", **options):
    """Return made-up costs that fit an algorithm's own options."""
    from muster.planning.calibrate import network_of

    settings = resolve(algo, env, options)
    return RunCosts(
        algo,
        env,
        settings.config.PROGRAM,
        network_of(settings),
        env=LINE,
        act=LINE,
        learn=LINE,
        rest=LINE,
        barrier_s=1e-5,
        message_s=1e-5,
        weight_bytes=1e4,
        sample_bytes=50.0,
        slots=4,
    )


@pytest.mark.parametrize("algo", sorted(ALGORITHMS))
def test_every_algorithm_has_a_plan_up_to_1000_workers(algo):
    found = muster.plan(algo, "CartPole-v1", calibration=costs_of(algo), cores_per_machine=8)
    apart = 0 if costs_of(algo).program == "in_step" else 2
    assert [row.workers for row in found.rows][:4] == [apart + count for count in (1, 2, 4, 8)]
    assert found.rows[-1].workers == 1_000
    lines = str(found).splitlines()
    assert max(map(len, lines)) <= 80 and lines[3].split()[:2] == ["workers", "machines"]
    assert len(lines) == 4 + len(found.rows) + 1
    again = json.loads(json.dumps(found.as_json()))
    assert [row["workers"] for row in again["rows"]] == [row.workers for row in found.rows]
    assert again["calibration"]["algo"] == algo


@pytest.mark.parametrize(
    ("workers", "scaling", "counts"),
    [
        (4, None, [1, 2, 4]),
        (3, "grow", [1, 2, 3]),
        (1, None, [1]),
        ("2..12", "grow", [2, 4, 8, 12]),
        (None, "fixed", [1, 2, 4]),
    ],
)
def test_workers_are_the_last_row_or_a_range(workers, scaling, counts):
    told = {"workers": workers, "scaling": scaling, "calibration": costs_of("ppo")}
    found = muster.plan("ppo", "CartPole-v1", **told)
    assert [row.workers for row in found.rows] == counts
    assert found.scaling == (scaling or "fixed")


def test_learners_are_workers_in_step_and_replicas_elsewhere():
    found = muster.plan("ppo", "CartPole-v1", learners=2, calibration=costs_of("ppo"))
    assert [row.learners for row in found.rows] == [1, 2]
    known = replace(costs_of("dqn", learners=2), learn=Affine(0.0, 1e-4))
    one, two = (
        muster.plan("dqn", "CartPole-v1", learners=k, workers=4, calibration=known).rows[-1]
        for k in (1, 2)
    )
    assert (one.learners, two.learners) == (1, 2)
    assert two.env_steps_per_s > one.env_steps_per_s and one.limited_by == "learn"


def test_faster_learning_and_a_better_link_are_faster():
    known = replace(costs_of("ppo"), learn=Affine(1e-2, 1e-4), weight_bytes=1e7)
    told = {"workers": 64, "scaling": "grow", "cores_per_machine": 4, "calibration": known}
    slow, fast, near = (
        muster.plan("ppo", "CartPole-v1", **told, **more).rows[-1].env_steps_per_s
        for more in ({}, {"learn_speedup": 50}, {"link_gbps": 400, "latency_us": 1})
    )
    assert slow < fast and slow < near


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"machines": 0}, "machines=0 is not possible"),
        ({"machines": 2.5}, "machines=2.5 is not possible"),
        ({"cores_per_machine": 0}, "cores_per_machine=0"),
        ({"link_gbps": -1}, "link_gbps=-1 is not possible"),
        ({"link_gbps": float("nan")}, "link_gbps=nan"),
        ({"latency_us": -5}, "latency_us=-5"),
        ({"learn_speedup": 0}, "learn_speedup=0"),
        ({"seconds": 0}, "seconds=0"),
        ({"workers": 0}, "workers=0 is not possible"),
        ({"workers": 1_001, "scaling": "grow"}, "workers=1001"),
        ({"workers": "many"}, "workers='many' is not possible"),
        ({"workers": 8}, "workers=8 and slots=4"),
        ({"scaling": "weak"}, "scaling='weak'"),
        ({"learners": 2, "workers": 4}, "contradict each other"),
        ({"lrr": 0.1}, "there is no option 'lrr'"),
        ({"hidden": (8,)}, "another network: hidden was"),
        ({"from_run": "."}, "cannot be used together"),
    ],
)
def test_an_option_that_is_not_possible_is_named(options, says):
    with pytest.raises(OptionError, match=says.replace("(", r"\(")) as error:
        muster.plan("ppo", "CartPole-v1", **{"calibration": costs_of("ppo"), **options})
    assert len(str(error.value).splitlines()) == 3


@pytest.mark.parametrize(
    ("algo", "env", "says"),
    [
        ("dqn", "CartPole-v1", "of the algorithm 'ppo'"),
        ("ppo", "Acrobot-v1", "of the environment 'CartPole-v1'"),
        ("ppoo", "CartPole-v1", "there is no algorithm 'ppoo'"),
        (None, None, "needs an algorithm"),
    ],
)
def test_a_calibration_is_of_one_algorithm_and_environment(algo, env, says):
    with pytest.raises(OptionError, match=says):
        muster.plan(algo, env, calibration=costs_of("ppo"))


def test_a_calibration_is_the_same_after_a_file(tmp_path):
    known = costs_of("ppo")
    write_costs(known, tmp_path / "costs.json")
    assert read_costs(tmp_path / "costs.json") == known


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda costs: "{", "damaged"),
        (lambda costs: "[]", "it has no format 1"),
        (lambda costs: json.dumps({**costs, "format": 2}), "it has no format 1"),
        (lambda costs: json.dumps({**costs, "learn": -1}), "learn is -1"),
        (lambda costs: json.dumps({**costs, "env": {"call": -1e-3, "row": 0}}), "env is"),
        (lambda costs: json.dumps({**costs, "learnt": 0}), "learnt is 0"),
        (lambda costs: json.dumps({**costs, "barrier_s": None}), "barrier_s is None"),
        (lambda costs: json.dumps({**costs, "slots": True}), "slots is True"),
        (lambda costs: json.dumps({**costs, "more": 1}), "it has 'more'"),
        (lambda costs: json.dumps({k: v for k, v in costs.items() if k != "act"}), "lacks 'act'"),
        (lambda costs: json.dumps(costs).replace("1e-05", "NaN"), "is "),
        (lambda costs: "\udcff", "is damaged"),
    ],
)
def test_a_damaged_calibration_is_named(tmp_path, change, says):
    file = tmp_path / "costs.json"
    file.write_bytes(change(costs_of("ppo").as_json()).encode(errors="surrogateescape"))
    with pytest.raises(OptionError, match=says) as error:
        muster.plan("ppo", "CartPole-v1", calibration=file)
    assert "costs.json" in str(error.value) and len(str(error.value).splitlines()) == 3


def test_an_absent_calibration_is_named(tmp_path):
    with pytest.raises(OptionError, match="No such file"):
        muster.plan("ppo", "CartPole-v1", calibration=tmp_path / "none.json")


@pytest.mark.parametrize("algo", ["ppo", "dqn", "impala", "a3c"])
def test_a_finished_run_predicts_itself(tmp_path, algo):
    run, more = tmp_path / "run", {"learning_starts": 64} if algo == "dqn" else {}
    done = train(algo, "CartPole-v1", run_dir=str(run), workers=0, env_steps=4_096, **TINY, **more)
    found = muster.plan(from_run=run, workers=None, cores_per_machine=1)
    assert (found.algo, found.env) == (algo, "CartPole-v1")
    known = found.costs
    assert known.measured["steps_per_s"] == done.speed["steps_per_s"]
    assert known.weight_bytes == done.speed["weight_bytes"] > 0
    assert known.network["hidden"] == [8]
    if algo == "ppo":
        assert found.rows[0].env_steps_per_s == pytest.approx(done.speed["steps_per_s"])
        assert known.variance_per_s > 0
    else:
        spent = {part: done.speed["split"][part] / done.speed["steps_per_s"] for part in ("env",)}
        assert known.env.row == pytest.approx(spent["env"])
        assert known.sample_bytes == done.speed["sent_bytes"] > 0
    with pytest.raises(OptionError, match=f"is of algo {algo!r}"):
        muster.plan("a2c", "CartPole-v1", from_run=run)
    with pytest.raises(OptionError, match="another network"):
        muster.plan(from_run=run, hidden=(16,))


def test_a_run_that_was_not_measured_is_rejected(tmp_path):
    run = tmp_path / "run"
    train("ppo", "CartPole-v1", run_dir=str(run), workers=0, env_steps=2_048, **TINY)
    result = json.loads((run / "result.json").read_text())
    (run / "result.json").write_text(json.dumps({**result, "speed": None}))
    with pytest.raises(OptionError, match="does not say how its time was spent"):
        muster.plan(from_run=run)
    (run / "result.json").unlink()
    with pytest.raises(OptionError, match="has not ended"):
        muster.plan(from_run=run)


@pytest.mark.timeout(120)
def test_a_barrier_and_a_message_are_measured_between_two_processes():
    found = measure_exchange()
    assert 0 < found.barrier_s < 0.1 and 0 < found.message_s < 0.1


@pytest.mark.timeout(300)
@pytest.mark.slow
@pytest.mark.parametrize("algo", ["ppo", "dqn", "impala", "a3c"])
def test_a_calibration_here_predicts_what_it_measured(algo):
    settings = resolve(algo, "CartPole-v1", {"hidden": (16,)})
    known = calibrate(algo, "CartPole-v1", settings, {"hidden": (16,)}, seconds=1.0)
    workers = known.measured["workers"]
    found = muster.plan(
        algo,
        "CartPole-v1",
        workers=workers,
        machines=1,
        hidden=(16,),
        calibration=known,
    )
    assert found.rows[-1].env_steps_per_s == pytest.approx(known.measured["steps_per_s"])
