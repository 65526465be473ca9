"""Weights & Biases when it is asked for: offline where it is installed, and refused where not."""

import importlib.util

import pytest

from muster.cli.main import main
from muster.installs import install
from muster.recipes.train import train

SMALL = {"env_steps": 128, "eval_every": 0, "eval_episodes": 1, "quiet": True}


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
def test_offline_its_files_are_in_the_run_directory(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    train("dqn", "CartPole-v1", run_dir=str(tmp_path / "run"), wandb=True, **SMALL)
    (written,) = (tmp_path / "run" / "wandb").glob("offline-run-*/run-*.wandb")
    assert b"eval/return" in written.read_bytes()
