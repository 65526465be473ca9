"""The command line of `muster fit`, its page, and what it leaves in a run directory."""

import dataclasses
import io
import json
import re
from pathlib import Path

import pytest

import muster
from muster import Task
from muster.cli.main import main
from muster.fitting import FitOptions
from muster.fitting.progress import FitProgress
from muster.fitting.saved import is_fit

PAGE = (Path(__file__).parents[2] / "docs" / "fit.md").read_text()

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def done(small, tmp_path_factory):
    run = tmp_path_factory.mktemp("cli") / "run"
    words = ["fit", "mlp", "--data", str(small), "--epochs", "2", "--batch-size", "16", "--quiet"]
    assert main([*words, "--run-dir", str(run)]) == 0
    return run


def test_a_run_leaves_what_runs_leave(done):
    names = {each.name for each in done.iterdir()}
    assert {"config.yaml", "command.txt", "env.json", "metrics.jsonl", "result.json"} <= names
    assert list((done / "tb").iterdir()) and list((done / "checkpoints").glob("step-150"))
    assert list((done / "checkpoints" / "best").glob("step-*"))
    result = json.loads((done / "result.json").read_text())
    assert result["test_accuracy"] is not None and len(result["model_sha256"]) == 64
    assert not [each for each in done.rglob("*") if each.suffix in (".pkl", ".pt", ".pth")]


def test_the_page_explains_every_option_and_metric_and_no_other(done):
    table = PAGE.partition("## Options")[2].partition("## Files")[0]
    named = set(re.findall(r"`--([a-z-]+)`", table))
    options = {each.name.replace("_", "-") for each in dataclasses.fields(FitOptions)}
    assert named == options
    lines = (done / "metrics.jsonl").read_text().splitlines()
    written = {name for line in lines for name in json.loads(line)}
    metrics = PAGE.partition("## Files and metrics")[2].partition("## Limits")[0]
    explained = set(re.findall(r"`([a-z]+(?:/[a-z_]+)?)`", metrics.partition("| metric")[2]))
    assert written - {"env_step", "train_iter", "seconds"} == explained - {"nodes/replaced"}


def test_resume_goes_on_with_a_fitted_run_and_records_the_change(done, capsys):
    assert is_fit(done)
    assert main(["resume", str(done), "--epochs", "3", "--quiet"]) == 0
    said = capsys.readouterr().out
    assert re.search(r"mlp on bars: test accuracy [\d.]+ % of 300 samples", said)
    assert "3 epochs in" in said and all(len(line) <= 80 for line in said.splitlines())
    text = (done / "config.yaml").read_text()
    assert "history" in text and "kind: fit" in text


@pytest.mark.parametrize(
    ("words", "message", "fix"),
    [
        (["resnet21", "--data", "digits"], "no model 'resnet21'", "muster fit resnet20"),
        (["mpl", "--data", "digits"], "no model 'mpl'", "muster fit mlp"),
        (["mlp"], "needs data", "--data digits"),
        (["--data", "digits"], "needs a model", "muster fit resnet8"),
        (["mlp", "--data", "digits", "--epoch", "3"], "no option --epoch", "--epochs"),
        (["mlp", "--data", "digits", "--epochs", "x"], "--epochs x is not possible", "--help"),
        (["mlp", "--data", "digits", "--epochs", "0"], "--epochs 0 is not", "--epochs 1"),
        (["mlp", "--data", "digits", "--replicas", "9"], "--replicas 9 is not", "--replicas 4"),
        (["mlp", "--data", "digits", "--schedule", "cos"], "--schedule cos", "--schedule cosine"),
        (["mlp", "--data", "nowhere"], "there is no data in nowhere", "--data digits"),
        (["--resume"], "--resume needs a run", "muster resume"),
        (["--resume", "--run-dir", "nowhere"], "there is no run in", "runs/"),
    ],
)
def test_a_mistake_gets_three_lines_and_code_2(words, message, fix, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["fit", *words]) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 3 and message in said[0] and fix in said[2]
    assert not (tmp_path / "runs").exists()


def test_help_shows_every_option_and_what_the_verb_is_for(capsys):
    with pytest.raises(SystemExit) as left:
        main(["fit", "--help"])
    shown = capsys.readouterr().out
    assert left.value.code == 0 and "muster fit MODEL --data PATH|digits" in shown
    for each in dataclasses.fields(FitOptions):
        assert f"--{each.name.replace('_', '-')}" in shown


def test_progress_fits_into_eighty_columns(monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm-256color")

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    def learn(ctx):
        ctx.keep("env_step")
        ctx.env_step = ctx.get("env_step", 0) + 50_000
        ctx.train_loss, ctx.test_score = 123.456, 0.98765

    file = Terminal()
    Task().use(FitProgress(10**6, 100_000, False, file)).use(learn).run(20)
    frames = [re.sub(r"\x1b\[[0-9;]*[mK]", "", each) for each in file.getvalue().split("\r")]
    assert all(len(frame.strip("\n")) <= 77 for frame in frames)
    assert "100000.0/100000 epochs" in frames[-1] and "test 98.77 %" in frames[-1], frames


def test_loading_a_fitted_network_as_a_policy_says_what_it_is(done):
    with pytest.raises(muster.MusterError, match="holds no policy"):
        muster.load_policy(done)
