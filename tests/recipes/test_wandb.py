"""Weights & Biases when it is asked for: offline where it is installed, and refused where not."""

import importlib.util

import pytest

from muster.cli.main import main
from muster.installs import install
from muster.recipes.train import resume, train

SMALL = {"env_steps": 128, "eval_every": 0, "eval_episodes": 1, "quiet": True}


@pytest.fixture(scope="module", autouse=True)
def no_service_is_left():
    """End the process that wandb keeps for later runs: tests of leftovers would find it."""
    yield
    if importlib.util.find_spec("wandb") is not None:
        import wandb

        wandb.teardown()


def test_without_the_package_it_is_refused_in_three_lines_before_anything_starts(
    tmp_path, monkeypatch, capsys
):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *rest: None if name == "wandb" else find_spec(name, *rest),
    )
    monkeypatch.chdir(tmp_path)
    assert main(["train", "dqn", "CartPole-v1", "--wandb"]) == 2
    shown = capsys.readouterr().err.splitlines()
    assert len(shown) == 3 and "Weights & Biases" in shown[0]
    assert shown[2] == f"  try: {install('wandb')}"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(
    ("algo", "workers"),
    [
        pytest.param("dqn", 0, marks=pytest.mark.slow),
        ("dqn", 3),
        ("ppo", 0),
        pytest.param("ppo", 2, marks=pytest.mark.slow),
    ],
)
def test_offline_its_files_are_in_the_run_directory(tmp_path, monkeypatch, algo, workers):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    options = {**SMALL, "run_dir": str(tmp_path / "run"), "wandb": True, "workers": workers}
    train(algo, "CartPole-v1", **options)
    (written,) = (tmp_path / "run" / "wandb").glob("offline-run-*/run-*.wandb")
    assert b"eval/return" in written.read_bytes()


@pytest.mark.filterwarnings("default")
def test_a_run_that_is_only_completed_sends_its_evaluation_too(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    place = tmp_path / "run"
    train("ppo", "CartPole-v1", run_dir=str(place), wandb=True, workers=0, **SMALL)
    (place / "result.json").unlink()
    metrics = (place / "metrics.jsonl").read_text().splitlines(keepends=True)
    (place / "metrics.jsonl").write_text("".join(metrics[:-1]))  # as if it had been killed there
    resume(place)
    written = [path.read_bytes() for path in (place / "wandb").glob("offline-run-*/run-*.wandb")]
    assert len(written) == 2 and all(b"eval/return" in each for each in written)
