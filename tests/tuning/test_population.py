"""Population-based training: who copies whom, with which settings, and what survives a kill."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import yaml

import muster
from muster.errors import OptionError
from muster.tuning.errors import SpaceError, TrialsFailedError
from muster.tuning.population import begin_generation, mutated
from muster.tuning.space import Choices, Span
from muster.tuning.study import Study, StudyRecord, StudyTrial

pytestmark = pytest.mark.timeout(240)

SPACE = {"lr": Span(1e-4, 1e-2, True, False), "epochs": Span(1, 10, False, True)}
LRS = {"lr": [0.1, 0.2, 0.3, 0.4]}


def population_of(scores, **more):
    trials = [
        StudyTrial(k, {"lr": 1e-3 * (k + 1), "epochs": k + 1}, seed=k, status="finished", score=x)
        for k, x in enumerate(scores)
    ]
    return StudyRecord(
        "ppo", "CartPole-v1", {"env_steps": 100}, "random", SPACE, len(scores), seed=7, confirm=0,
        scheduler="pbt", trials=trials, generations=5, **more,
    )  # fmt: skip


@pytest.fixture
def study_of(tmp_path):
    """Make a study whose trials have ended, each with a run directory."""
    studies = []

    def make(record, name="s"):
        study = Study.create(tmp_path / name, record)
        studies.append(study)
        for trial in record.trials:
            place = study.directory(trial)
            place.mkdir(parents=True)
            (place / "weights").write_text(str(trial.number))
            (place / ".writer.json").write_text("{}")
        return study

    yield make
    for study in studies:
        study.__exit__()


def test_the_worst_quarter_continues_as_copies_of_the_best_quarter(study_of):
    study = study_of(population_of([5, 1, 8, 3, 7, 2, 6, 4]))
    copied = begin_generation(study)
    assert sorted(trial.number for trial in copied) == [1, 5]
    for trial in copied:
        (takeover,) = trial.takeovers
        assert takeover.source in (2, 4) and takeover.generation == 1
        assert trial.settings == takeover.settings != study.record.trials[takeover.source].settings
        assert trial.place == f"trials/{trial.number:03}-1"
        assert (study.directory(trial) / "weights").read_text() == str(takeover.source)
        assert not (study.directory(trial) / ".writer.json").exists()
    assert {trial.status for trial in study.record.trials} == {"waiting"}
    assert (study.record.generation, study.record.goal) == (1, 40)


def test_nobody_copies_a_trial_that_is_not_better(study_of):
    assert begin_generation(study_of(population_of([500.0] * 8))) == []


def test_every_failed_trial_is_replaced(study_of):
    record = population_of([5, 1, 8, 3, 7, 2, 6, 4])
    for number in (0, 2, 6):
        record.trials[number].status, record.trials[number].problem = "failed", "a reason"
        record.trials[number].score = None
    copied = begin_generation(study_of(record))
    assert {trial.number for trial in copied} == {0, 2, 6}
    assert {trial.takeovers[-1].source for trial in copied} <= {3, 4}
    assert not any(trial.problem for trial in record.trials)


def test_a_study_that_was_killed_between_two_generations_copies_the_same_again(study_of):
    once, again = (study_of(population_of([4, 1, 3, 2]), name) for name in "ab")
    begin_generation(once)
    half = again.directory(again.record.trials[1]).with_name("001-1")
    half.mkdir()  # copied by the study that was killed before it could write that down
    (half / "weights").write_text("half")
    begin_generation(again)
    assert once.record == again.record
    assert (half / "weights").read_text() == "0"
    with pytest.raises(AssertionError):  # another seed decides otherwise
        other = population_of([4, 1, 3, 2])
        other.seed = 8
        begin_generation(study_of(other, "c"))
        assert other.trials[1].settings == once.record.trials[1].settings


def test_settings_change_a_little_or_are_drawn_anew_and_stay_in_their_ranges():
    space = {**SPACE, "gamma": Choices((0.9, 0.99, 0.999)), "clip": Choices((0.1, 0.2, 0.3))}
    settings = {"lr": 9e-3, "epochs": 2, "gamma": 0.9, "clip": 0.2}
    rng = np.random.default_rng(0)
    found = [mutated(space, settings, rng) for _ in range(400)]
    near = [each["lr"] for each in found if each["lr"] in (9e-3 * 0.8, 1e-2)]
    assert 0.65 < len(near) / 400 < 0.85 and len(set(near)) == 2
    assert all(1e-4 <= each["lr"] <= 1e-2 for each in found)
    assert {each["epochs"] for each in found} == set(range(1, 11))
    assert all(isinstance(each["epochs"], int) for each in found)
    assert sum(each["epochs"] in (1, 3) for each in found) > 280
    assert {each["clip"] for each in found} == {0.1, 0.2, 0.3}
    assert sum(each["clip"] == 0.2 for each in found) < 80  # a copy is not the same again
    assert sum(each["gamma"] == 0.999 for each in found) < 80


def test_trials_train_in_generations_and_are_never_pruned(pretend):
    result = muster.tune(
        "ppo", "CartPole-v1", grid=LRS, scheduler="pbt", generations=3, env_steps=10, out="s",
        quiet=True,
    )  # fmt: skip
    saved = json.loads(Path("s/study.json").read_text())
    assert saved["generation"] == 2 and {t["env_steps"] for t in saved["trials"]} == {10}
    # With pretended returns the highest lr wins; its copies have lr near it.
    assert result.best["lr"] == 0.4 and result.trials[-1].settings["lr"] >= 0.1
    assert all(trial["takeovers"] for trial in saved["trials"] if trial["number"] == 0)
    assert result.trials[0].returns == ()
    assert result.best_run == result.path / "trials/003"


def test_an_interrupted_population_continues_with_its_generation(pretend):
    words = {"grid": LRS, "scheduler": "pbt", "generations": 3, "env_steps": 10, "quiet": True}
    whole = muster.tune("ppo", "CartPole-v1", out="whole", **words)
    name = next(Path("whole/trials").glob("*-1")).name
    pretend(**{f"trials_{name.replace('-', '_')}": "interrupt"})
    part = muster.tune("ppo", "CartPole-v1", out="s", jobs=1, **words)
    assert part.stop_signal == signal.SIGINT
    assert json.loads(Path("s/study.json").read_text())["generation"] == 1
    pretend()
    rest = muster.tune(resume="s", quiet=True)
    assert rest.table() == whole.table()


def test_a_population_whose_trials_all_fail_ends(pretend):
    pretend(trials_000="fail", trials_001="fail", trials_002="fail", trials_003="fail")
    with pytest.raises(TrialsFailedError, match="all 4 trials failed"):
        muster.tune("ppo", "CartPole-v1", grid=LRS, scheduler="pbt", env_steps=10, quiet=True)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"grid": {"lr": [0.1, 0.2]}}, "a population of 2 is too small"),
        ({"space": {"lr": "log:1e-4:1e-2"}, "search": "tpe"}, "--search tpe and --scheduler pbt"),
        ({"space": {"hidden": [(8,), (16,)]}}, "hidden cannot be tuned with --scheduler pbt"),
        ({"space": {"num_envs": [8, 16]}}, "num_envs cannot be tuned with --scheduler pbt"),
        ({"grid": LRS, "env_steps": 5}, "5 steps cannot be cut into 10 generations"),
        ({"grid": LRS, "generations": 1}, "generations"),
        ({"grid": LRS, "scheduler": "asha", "generations": 3}, "--generations needs"),
    ],
)
def test_what_cannot_be_a_population_is_refused_before_anything_starts(pretend, options, what):
    with pytest.raises(OptionError, match=what):
        muster.tune("ppo", "CartPole-v1", **{"scheduler": "pbt", **options}, out="s")
    assert not Path("s").exists()


def test_a_resumed_study_does_not_become_a_population(pretend):
    muster.tune("ppo", "CartPole-v1", grid=LRS, confirm=0, out="s", quiet=True)
    with pytest.raises(OptionError, match="does not accept generations"):
        muster.tune(resume="s", generations=3)
    with pytest.raises(SpaceError, match="--generations needs --scheduler pbt"):
        muster.tune("ppo", "CartPole-v1", grid=LRS, generations=3, out="t")


SMALL = {
    "env_steps": 6_144,
    "num_envs": 4,
    "eval_every": 0,
    "eval_episodes": 2,
    "stop_at": None,
    "hidden": (8,),
}


def test_a_copy_goes_on_from_the_checkpoint_that_it_copied(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = muster.tune(
        "ppo", "CartPole-v1", grid={"lr": [1e-5, 1e-4, 1e-3, 1e-2]}, scheduler="pbt",
        generations=2, out="s", quiet=True, **SMALL,
    )  # fmt: skip
    saved = json.loads(Path("s/study.json").read_text())
    (copy,) = (trial for trial in saved["trials"] if trial["takeovers"])
    (takeover,) = copy["takeovers"]
    config = yaml.safe_load(Path(f"s/trials/{copy['number']:03}-1/config.yaml").read_text())
    (change,) = config["history"]
    source = saved["trials"][takeover["source"]]
    assert change["env_step"] == 3_072 and config["seed"] == source["seed"]
    assert config["lr"] == copy["settings"]["lr"] == takeover["settings"]["lr"]
    lines = Path(f"s/trials/{copy['number']:03}-1/metrics.jsonl").read_text().splitlines()
    steps = [json.loads(line)["env_step"] for line in lines]
    assert steps == sorted(steps) and steps[-1] == 6_144
    assert {trial["env_steps"] for trial in saved["trials"]} == {6_144}
    assert muster.load_policy(result.best_run).act([0.0, 0.1, 0.02, -0.1]) in (0, 1)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_population_killed_at_any_time_and_resumed_has_the_same_result(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = {"scheduler": "pbt", "generations": 4, **SMALL}
    grid = {"lr": [1e-5, 1e-4, 1e-3, 1e-2]}
    whole = muster.tune("ppo", "CartPole-v1", grid=grid, out="whole", quiet=True, **options)
    words = ["--grid", "lr=1e-5,1e-4,1e-3,1e-2", "--out", "s"]
    for name, value in options.items():
        shown = "+".join(map(str, value)) if isinstance(value, tuple) else value
        words += [f"--{name.replace('_', '-')}={shown}"]
    command = [sys.executable, "-m", "muster", "tune"]
    study = subprocess.Popen([*command, "ppo", "CartPole-v1", *words])
    kills = 0
    for generation in range(3):
        while _generation("s") < generation or not _is_running("s"):
            assert study.poll() is None
            time.sleep(0.02)
        time.sleep(0.3 * generation)  # at another moment of each generation
        study.kill()
        kills += study.wait() == -signal.SIGKILL
        study = subprocess.Popen([*command, "--resume", "s"])
    assert study.wait(600) == 0 and kills == 3
    assert Path("s/table.txt").read_text() == Path("whole/table.txt").read_text()
    assert _hashes("s") == _hashes("whole") and len(whole.trials) == 4


def _record(study):
    try:
        return json.loads(Path(study, "study.json").read_text())
    except FileNotFoundError:
        return {"generation": -1, "trials": []}


def _generation(study):
    return _record(study)["generation"]


def _is_running(study):
    return any(trial["status"] == "running" for trial in _record(study)["trials"])


def _hashes(study):
    found = sorted(Path(study, "trials").glob("*/result.json"))
    return {each.parent.name: json.loads(each.read_text())["policy_sha256"] for each in found}
