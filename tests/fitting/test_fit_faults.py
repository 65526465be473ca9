"""Replicas that are killed are replaced and change no bit; signals save and leave."""

import json
import signal
import subprocess
import sys

import pytest
from deadly import VARIABLE, Deadly

import muster

pytestmark = pytest.mark.timeout(900)  # later and later, twenty restarts take some minutes


def fitted(small, run, replicas, epochs=4):
    return muster.fit(
        Deadly,
        small,
        replicas=replicas,
        epochs=epochs,
        batch_size=16,
        padding=1,
        lr=0.05,
        quiet=True,
        run_dir=run,
    )


def lines_of(run):
    kept = ("env_step", "train/loss", "train/grad_norm", "eval/accuracy", "eval/loss")
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [{key: json.loads(line)[key] for key in kept} for line in lines]


# An epoch is five updates of two slots each, so ten forward passes, and then one of evaluation.
@pytest.mark.parametrize(
    ("who", "when", "times"),
    [
        pytest.param(0, 8, 1, id="the_first_while_it_learns"),
        pytest.param(1, 11, 1, id="the_second_while_it_evaluates", marks=pytest.mark.slow),
        pytest.param(0, 11, 1, id="the_first_while_it_evaluates", marks=pytest.mark.slow),
        pytest.param(1, 1, 1, id="the_second_before_anything", marks=pytest.mark.slow),
        pytest.param(1, 9, 20, id="the_second_twenty_times", marks=pytest.mark.slow),
    ],
)
def test_a_killed_replica_is_replaced_and_the_network_is_the_same_to_the_bit(
    small, tmp_path, monkeypatch, who, when, times
):
    epochs = 4 if times == 1 else 20
    whole = fitted(small, tmp_path / "whole", 1, epochs)
    (tmp_path / "marks").mkdir()
    monkeypatch.setenv(VARIABLE, f"{who} {when} {times} {tmp_path / 'marks'}")
    killed = fitted(small, tmp_path / "killed", 2, epochs)
    assert len(list((tmp_path / "marks").iterdir())) == killed.replacements == times
    assert killed.model_sha256 == whole.model_sha256
    assert killed.best_test_accuracy == whole.best_test_accuracy
    assert lines_of(tmp_path / "killed") == lines_of(tmp_path / "whole")


def command(*words, **more):
    return subprocess.Popen(
        [sys.executable, "-m", "muster", "fit", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **more,
    )


@pytest.mark.parametrize(
    ("number", "replicas"),
    [
        (signal.SIGTERM, 2),
        pytest.param(signal.SIGINT, 1, marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, 1, marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, 2, marks=pytest.mark.slow),
    ],
)
def test_a_signal_saves_and_leaves_with_its_code_and_the_run_goes_on(
    small, tmp_path, number, replicas
):
    run = tmp_path / "run"
    words = ["mlp", "--data", small, "--batch-size", 16, "--epochs", 100_000, "--run-dir", run]
    driver = command(*words, "--replicas", replicas, "--eval-every", 0, "--checkpoint-every", 0)
    try:
        while "epochs" not in driver.stderr.readline():  # the first line of progress
            assert driver.poll() is None
        driver.send_signal(number)
        out, _ = driver.communicate(timeout=300)
    finally:
        driver.kill()
    assert driver.returncode == 128 + number
    assert "not evaluated" in out and "muster resume" in out.splitlines()[-1]
    result = json.loads((run / "result.json").read_text())
    assert (result["stopped_by"], result["stop_signal"]) == ("signal", number)
    more = result["train_iter"] // 5 + 1
    done = muster.fit(run_dir=run, resume=True, epochs=more, replicas=1, quiet=True)
    assert done.train_iter == 5 * more and done.test_samples == 300


def test_a_node_that_finds_other_data_says_so(small, tmp_path):
    from muster.fitting.job import FitJob
    from muster.fitting.options import FitOptions

    job = FitJob("mlp", FitOptions(data=str(small)), "0" * 64, str(tmp_path))
    with pytest.raises(muster.MusterError, match="the data of bars have changed"):
        job.load_data()


@pytest.mark.parametrize(
    "replicas", [pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)]
)
def test_digits_are_told_apart_in_97_of_100_cases(tmp_path, replicas):
    done = muster.fit(
        "resnet8", "digits", epochs=5, replicas=replicas, quiet=True, run_dir=tmp_path / "run"
    )
    assert done.test_samples == 359 and done.test_accuracy >= 0.97


def test_a_small_network_tells_digits_apart(tmp_path):
    done = muster.fit("mlp", "digits", epochs=12, quiet=True, run_dir=tmp_path / "run")
    assert done.test_accuracy >= 0.95
