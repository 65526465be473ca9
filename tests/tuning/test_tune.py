"""`muster.tune` with pretended training: trials, failures, interruptions, what a study leaves."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from begun_trials import begun, pids

import muster
from muster.recipes.settings import read_file, resolve
from muster.run.errors import RunLockedError
from muster.tuning.errors import SpaceError, StudyError, TrialsFailedError
from muster.tuning.study import Study

pytestmark = pytest.mark.timeout(120)

FILE = Path("s/study.json")
GRID = {"lr": [0.01, 0.001], "gamma": [0.9, 0.99]}


def test_a_grid_tries_every_combination_with_a_seed_of_its_own(pretend):
    result = muster.tune("ppo", "CartPole-v1", grid=GRID, confirm=0, out="s", quiet=True)
    tried = {(each.settings["lr"], each.settings["gamma"]) for each in result.trials}
    assert tried == {(0.01, 0.9), (0.01, 0.99), (0.001, 0.9), (0.001, 0.99)}
    saved = json.loads((result.path / "study.json").read_text())
    assert len({trial["seed"] for trial in saved["trials"]}) == 4
    assert {trial["status"] for trial in saved["trials"]} == {"finished"}


def test_the_best_settings_run_again_on_unseen_seeds_and_are_ranked_by_iqm(pretend):
    result = muster.tune("ppo", "CartPole-v1", grid={"lr": [0.001, 0.1]}, out="s", quiet=True)
    saved = json.loads((result.path / "study.json").read_text())["trials"]
    searched = {trial["seed"] for trial in saved if not trial["repeat"]}
    confirmed = {trial["seed"] for trial in saved if trial["repeat"]}
    assert len(confirmed) == 5 and not searched & confirmed
    assert result.best == {"lr": 0.1}
    first = result.trials[0]
    assert len(first.returns) == 5 and first.interval.low <= first.iqm <= first.interval.high
    assert max(map(len, result.table().splitlines())) <= 80


def test_the_best_settings_are_a_file_that_train_takes(pretend):
    result = muster.tune(
        "ppo", "CartPole-v1", grid={"lr": [0.1, 0.2], "hidden": [(8, 8)]}, num_envs=4, confirm=0
    )
    found = resolve("ppo", "CartPole-v1", read_file(result.best_file, "ppo", "CartPole-v1"))
    assert (found.config.lr, found.config.hidden, found.options.num_envs) == (0.2, (8, 8), 4)


def test_a_trial_that_fails_is_reported_and_does_not_end_the_study(pretend, capsys):
    pretend(trials_001="fail")
    result = muster.tune("ppo", "CartPole-v1", grid=GRID, confirm=0, out="s")
    assert [each.status for each in result.trials] == ["finished"] * 3 + ["failed"]
    said = capsys.readouterr().err
    assert "trial 1 failed: the environment is broken; see s/logs/trials-001.log" in said
    assert "1  lr=0.01 gamma=0.99" in result.table() and "failed" in result.table()


def test_a_study_whose_trials_all_fail_says_why(pretend):
    pretend(trials_000="fail", trials_001="fail")
    with pytest.raises(TrialsFailedError, match="all 2 trials failed") as raised:
        muster.tune("ppo", "CartPole-v1", grid={"lr": [0.1, 0.2]}, out="s", quiet=True)
    assert "the environment is broken" in str(raised.value) and raised.value.run_failed


def test_an_interrupted_study_goes_on_and_ends_with_the_same_table(pretend):
    whole = muster.tune("ppo", "CartPole-v1", grid=GRID, confirm=2, out="whole", quiet=True)
    pretend(trials_002="interrupt")
    part = muster.tune("ppo", "CartPole-v1", grid=GRID, confirm=2, out="s", jobs=1, quiet=True)
    assert part.stop_signal == signal.SIGINT and begun("s") == [
        "trials/000",
        "trials/001",
        "trials/002",
    ]
    assert not (part.path / "best.yaml").exists()
    pretend()
    rest = muster.tune(resume="s", quiet=True)
    assert rest.table() == whole.table() and rest.stop_signal is None
    assert begun("s").count("trials/000") == 1 and begun("s").count("trials/002") == 2


def test_a_killed_study_leaves_no_trial_running_and_ends_with_the_same_table(
    pretend, study_process
):
    whole = muster.tune("ppo", "CartPole-v1", grid=GRID, confirm=1, out="whole", quiet=True)
    pretend(trials_002="kill")
    words = ["ppo", "CartPole-v1", "--grid", "lr=0.01,0.001", "gamma=0.9,0.99"]
    done = study_process(*words, "--confirm", "1", "--out", "s", "--jobs", "2")
    assert done.returncode == -signal.SIGKILL
    _wait_until_gone(pids("s"))
    finished = [t["number"] for t in _trials("s") if t["status"] == "finished"]
    pretend()
    rest = muster.tune(resume="s", quiet=True)
    assert rest.table() == whole.table()
    assert all(begun("s").count(f"trials/{number:03}") == 1 for number in finished)


def test_a_trial_that_finished_while_nobody_looked_is_not_repeated(pretend):
    muster.tune("ppo", "CartPole-v1", grid=GRID, confirm=0, out="s", quiet=True)
    saved = json.loads(FILE.read_text())
    saved["trials"][1].update(status="running", score=None)
    FILE.write_text(json.dumps(saved))
    result = muster.tune(resume="s", quiet=True)
    assert begun("s").count("trials/001") == 1
    assert all(each.score is not None for each in result.trials)


def test_a_second_process_cannot_write_into_a_study(pretend):
    muster.tune("ppo", "CartPole-v1", grid={"lr": [0.1]}, confirm=0, out="s", quiet=True)
    with Study.open("s"), pytest.raises(RunLockedError, match="is in use"):
        muster.tune(resume="s")


@pytest.mark.parametrize("damage", ["", "{}", '{"algo": 3}', "[]", "\xff"])
def test_a_damaged_study_is_refused_and_left_as_it_is(pretend, damage):
    muster.tune("ppo", "CartPole-v1", grid={"lr": [0.1]}, confirm=0, out="s", quiet=True)
    FILE.write_text(damage)
    with pytest.raises(StudyError, match="is damaged"):
        muster.tune(resume="s")
    assert FILE.read_text() == damage and len(begun("s")) == 1


def test_a_study_that_is_resumed_refuses_other_settings(pretend):
    muster.tune("ppo", "CartPole-v1", grid={"lr": [0.1]}, confirm=0, out="s", quiet=True)
    with pytest.raises(muster.OptionError, match="does not accept num_envs"):
        muster.tune(resume="s", num_envs=2)
    with pytest.raises(muster.OptionError, match="the study is of algo 'ppo', not of 'dqn'"):
        muster.tune("dqn", "CartPole-v1", resume="s")


def test_code_that_only_a_study_names_is_not_run(pretend):
    muster.tune("ppo", "CartPole-v1", grid={"lr": [0.1]}, confirm=0, out="s", quiet=True)
    text = FILE.read_text()
    FILE.write_text(text.replace('"workers": 0', '"workers": 0, "model": "evil:Net"'))
    with pytest.raises(muster.OptionError, match="runs your own code, 'evil:Net'"):
        muster.tune(resume="s")


def test_random_search_draws_the_same_trials_again(pretend):
    space = {"lr": "log:1e-4:1e-1", "epochs": "1:8", "hidden": [(8,), (16, 16)]}
    one, two = (
        muster.tune("ppo", "CartPole-v1", space=space, trials=3, confirm=0, out=out, quiet=True)
        for out in ("a", "b")
    )
    assert one.table() == two.table()
    assert len({each.settings["lr"] for each in one.trials}) == 3


def test_a_trial_that_falls_behind_is_pruned_and_keeps_its_directory(pretend):
    pretend(trials_005="lag")
    result = muster.tune(
        "ppo",
        "CartPole-v1",
        space={"lr": "0.01:0.1"},
        trials=6,
        confirm=0,
        env_steps=3,
        jobs=1,
        out="s",
        quiet=True,
    )
    assert [each.status for each in result.trials] == ["finished"] * 5 + ["pruned"]
    saved = json.loads((result.path / "trials/005/result.json").read_text())
    assert saved["stopped_by"] == "signal"


def test_tpe_keeps_its_trials_in_a_journal_that_optuna_reads(pretend):
    optuna = pytest.importorskip("optuna")
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    space = {"lr": "log:1e-4:1e-1", "hidden": [(8,), (16, 16)], "epochs": "1:8"}
    pretend(trials_002="interrupt")
    muster.tune(
        "ppo",
        "CartPole-v1",
        space=space,
        search="tpe",
        trials=4,
        confirm=0,
        out="s",
        jobs=1,
        quiet=True,
    )
    pretend()
    result = muster.tune(resume="s", quiet=True)
    assert [each.status for each in result.trials] == ["finished"] * 4
    storage = JournalStorage(JournalFileBackend("s/optuna.journal"))
    (name,) = optuna.get_all_study_names(storage)
    there = optuna.load_study(study_name=name, storage=storage).trials
    assert [trial.value for trial in there] == [trial["score"] for trial in _trials("s")]
    assert {trial.state.name for trial in there} == {"COMPLETE"}


def test_tpe_without_optuna_names_the_install_line(pretend, monkeypatch):
    import importlib.util

    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "optuna" else found(name)
    )
    with pytest.raises(muster.OptionError, match="needs Optuna") as raised:
        muster.tune("ppo", "CartPole-v1", space={"lr": "0.1:0.2"}, search="tpe", out="s")
    assert "[tune]" in str(raised.value) and not os.path.exists("s")


def test_a_checkpoint_of_another_algorithm_is_refused(pretend, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.yaml").write_text("algo: dqn\nenv: CartPole-v1\n")
    with pytest.raises(muster.OptionError, match="is of dqn on CartPole-v1"):
        muster.tune("ppo", "CartPole-v1", grid={"lr": [0.1]}, from_checkpoint=run, out="s")
    assert not os.path.exists("s")


def test_a_combination_that_cannot_be_is_refused_before_any_trial(pretend):
    with pytest.raises(SpaceError, match=r"a trial with lr -1\.0 is not possible"):
        muster.tune("ppo", "CartPole-v1", grid={"lr": [0.1, -1.0]}, out="s")
    assert not os.path.exists("s")


def test_the_process_of_a_study_loads_neither_torch_nor_optuna():
    code = (
        "import sys, muster.tuning.tune; "
        "print([name for name in ('torch', 'optuna', 'ray') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout == "[]\n"


def _trials(study):
    return json.loads(Path(study, "study.json").read_text())["trials"]


def _wait_until_gone(processes):
    deadline = time.monotonic() + 30
    while any(_lives(pid) for pid in processes):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _lives(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
