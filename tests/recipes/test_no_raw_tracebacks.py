"""Whatever is in the way of a run is said in three lines: no traceback, and nothing that hangs."""

import gc
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

import muster.actors
import muster.engines.local.handshake
import muster.engines.memory
import muster.recipes.failure  # noqa: F401  # all kinds of errors are to be known here
from muster.cli.main import main
from muster.errors import MusterError
from muster.flow import ParameterServer

QUICK = ["--env-steps", "512", "--rollout", "64", "--eval-episodes", "1", "--quiet"]


def muster_(folder, *words, **environment):
    return subprocess.run(
        [sys.executable, "-m", "muster", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, **environment},
    )


def said_in_three_lines(error, code, codes=(1, 2)):
    lines = error.splitlines()
    assert "Traceback" not in error and len(lines) == 3, error
    assert lines[0].startswith("muster: ")
    assert [line[:6] for line in lines[1:]] == ["  why:", "  try:"]
    assert code in codes


def kinds(base=MusterError):
    for each in base.__subclasses__():
        yield each
        yield from kinds(each)


def test_every_error_can_be_printed():
    """One that is an OSError too lost its third part, and could not."""
    gc.collect()
    found = {each for each in kinds() if each.__module__.startswith("muster.")}
    assert len(found) > 15
    for kind in found:
        error = kind.__new__(kind, "what", "why", "fix")
        MusterError.__init__(error, "what", "why", "fix")
        plain = kind.__str__ is MusterError.__str__
        assert str(error) == "what\n  why: why\n  try: fix" if plain else "what" in str(error)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    words = ["train", "ppo", "CartPole-v1", "--workers", "0", "--run-dir", "run", *QUICK]
    assert muster_(folder, *words).returncode == 0
    return folder / "run"


@pytest.mark.parametrize("what", ["pipe", "folder", "nonsense"])
@pytest.mark.parametrize(
    "name",
    ["env.json", "config.yaml", "metrics.jsonl", "command.txt", "result.json", "tb", "logs"],
)
def test_what_is_no_file_of_a_run_is_said_and_never_waited_for(
    trained, tmp_path, monkeypatch, capsys, name, what
):
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    shutil.rmtree(run / name) if (run / name).is_dir() else (run / name).unlink()
    if what == "pipe":
        os.mkfifo(run / name)
    elif what == "folder":
        (run / name).mkdir()
    else:
        (run / name).write_text("{[")
    code = main(["resume", "run", "--env-steps", "1024", "--quiet"])
    if code:
        error = capsys.readouterr().err
        said_in_three_lines(error, code)
        assert name in error
    else:  # what can be made anew is
        made_anew = (what == "folder" and name in ("tb", "logs")) or name == "result.json"
        assert made_anew or what == "nonsense"


@pytest.mark.parametrize("algo", ["ppo", "dqn"])
@pytest.mark.parametrize("model", ["os:system", "math:pi", "json:dumps", "no_such:Net"])
def test_a_model_that_is_none(tmp_path, monkeypatch, capsys, algo, model):
    monkeypatch.chdir(tmp_path)
    code = main(["train", algo, "CartPole-v1", "--model", model, "--workers", "0", "--quiet"])
    said_in_three_lines(capsys.readouterr().err, code, (2,))
    assert not (tmp_path / "runs").exists()


def test_a_folder_that_was_removed(tmp_path):
    program = "import os, sys; os.rmdir(os.getcwd()); from muster.cli.main import main; "
    program += "sys.exit(main(['train', 'ppo', 'CartPole-v1']))"
    (tmp_path / "gone").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path / "gone", capture_output=True, text=True,
        timeout=300,
    )  # fmt: skip
    said_in_three_lines(done.stderr, done.returncode, (2,))


def test_a_long_path_of_temporary_files_is_passed_over(tmp_path):
    long = tmp_path / ("x" * 120)
    long.mkdir()
    words = ["train", "ppo", "CartPole-v1", "--workers", "2", *QUICK]
    done = muster_(tmp_path, *words, TMPDIR=str(long), XDG_RUNTIME_DIR="")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "int64"])
def test_weights_of_any_type_are_saved(tmp_path, dtype):
    import torch
    from safetensors.torch import load_file

    value = torch.arange(3).to(getattr(torch, dtype))
    server = ParameterServer({"w": value, "beside": np.ones(2, np.float32)})
    saved = load_file(server.save_weights(tmp_path / "w"))
    assert torch.equal(saved["w"], value) and saved["w"].dtype == value.dtype
