"""I1 to I4 through the real command line: three lines, code 2, no file, and no torch."""

import os
import subprocess
import sys

import gymnasium as gym
import pytest
from bad_input import CASES, KEYS, SLIPS, is_legal

from muster.cli.main import main
from muster.recipes import train as recipe
from muster.recipes.train import train

TRAIN = ["train", "dqn", "CartPole-v1"]


class Accepted(BaseException):
    """Raised in place of training."""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A working directory; what is written beside or above it is found."""
    here = tmp_path / "above" / "here"
    here.mkdir(parents=True)
    monkeypatch.chdir(here)
    return here


@pytest.fixture
def no_training(monkeypatch):
    def accept(*arguments, **options):
        raise Accepted

    monkeypatch.setattr(recipe, "train", accept)


def written(tmp_path):
    return sorted(
        os.path.relpath(os.path.join(folder, name), tmp_path)
        for folder, _, files in os.walk(tmp_path)
        for name in files
    )


def refused(arguments, capsys):
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert out == "" and len(lines) == 3, err
    assert lines[0].startswith("muster: ")
    assert lines[1].startswith("  why: ") and lines[2].startswith("  try: ")
    return err


@pytest.mark.parametrize("key", KEYS)
def test_each_slip_of_an_option_is_answered_with_the_option(key, place, capsys, no_training):
    right = f"--{key.replace('_', '-')}"
    for slip in [slip for slip, meant in SLIPS if meant == key]:
        typed = f"--{slip.replace('_', '-')}"
        if typed.lstrip("-") == right.lstrip("-"):
            continue
        for words in ([typed, "1"], [f"{typed}=1"]):
            message = refused([*TRAIN, *words], capsys)
            assert f"nearest is {right}\n" in message, message
    assert os.listdir(place) == []


@pytest.mark.parametrize(("name", "text"), CASES)
def test_an_odd_number_is_legal_or_refused(name, text, place, capsys, no_training):
    words = [f"--{name.replace('_', '-')}", text]
    if is_legal(name, text):
        with pytest.raises(Accepted):
            main([*TRAIN, *words])
    else:
        assert words[0] in refused([*TRAIN, *words], capsys)
    assert os.listdir(place) == []


LONG = "x" * 300
SMALL = {"env_steps": 16, "num_envs": 2, "train_every": 16, "updates_per_train": 1}
SMALL |= {"learning_starts": 16, "batch_size": 8, "eval_episodes": 1, "quiet": True}
SMALL_TYPED = [
    word
    for name, value in SMALL.items()
    for word in ([f"--{name.replace('_', '-')}"] + ([] if value is True else [str(value)]))
]


@pytest.mark.parametrize(
    "name", ["a\0b", "a\nb", LONG, f"a/{LONG}/b", "a\x1b[2J", "--x", "-x", "", "a/-x"]
)
def test_a_name_that_cannot_be_a_directory_is_refused(name, place, capsys, tmp_path):
    refused([*TRAIN, *SMALL_TYPED, f"--run-dir={name}"], capsys)
    assert written(tmp_path) == [] and os.listdir(place) == []


@pytest.mark.parametrize("name", ["../x", "{tmp}/x", "a/../b", "<script>alert(1)</script>", "a b"])
def test_a_path_that_the_user_gave_is_the_run_directory_itself(name, place, capsys, tmp_path):
    name = name.format(tmp=tmp_path)
    assert main([*TRAIN, *SMALL_TYPED, "--run-dir", name]) == 0
    inside = os.path.relpath(os.path.normpath(os.path.join(place, name)), tmp_path)
    assert all(path.startswith(f"{inside}/") for path in written(tmp_path))
    assert f"{inside}/result.json" in written(tmp_path)


def test_a_link_is_no_run_directory(place, capsys, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (place / "link").symlink_to(elsewhere)
    assert "is a symbolic link" in refused([*TRAIN, *SMALL_TYPED, "--run-dir", "link"], capsys)
    assert os.listdir(elsewhere) == [] and written(tmp_path) == []


def test_a_link_in_runs_does_not_lead_out(place, capsys, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (place / "runs").mkdir()
    (place / "runs" / "CartPole-v1").symlink_to(elsewhere)
    assert "is not inside" in refused([*TRAIN, *SMALL_TYPED], capsys)
    assert written(tmp_path) == []


ODD_IDS = ["../x", "/etc/passwd", "..", "a/../../b", "x\0y", "x\ny", LONG, "<script>", "", "a b"]
ODD_IDS += ["..:x", ".:x", ":x", "a\0:x", "../..:x", "os:x", "os:..", "no_such_module:x"]


@pytest.mark.parametrize("env", ODD_IDS)
def test_an_odd_environment_is_refused(env, place, capsys, tmp_path):
    refused(["train", "dqn", env, *SMALL_TYPED], capsys)
    assert written(tmp_path) == [] and os.listdir(place) == []


@pytest.mark.parametrize("env", ["../x-v0", "a/..-v0", "..x-v0", "a/b-v0"])
def test_a_registered_environment_of_any_name_stays_inside_runs(env, place, tmp_path):
    spec = gym.spec("CartPole-v1")
    registered = gym.envs.registration.EnvSpec("Plain-v0", spec.entry_point, max_episode_steps=9)
    gym.registry[env] = registered  # Gymnasium itself would refuse some of these names
    try:
        result = train("dqn", env, **SMALL)
    finally:
        del gym.registry[env]
    assert result.run_dir.resolve().is_relative_to(place / "runs")
    assert all(path.startswith("above/here/runs/") for path in written(tmp_path))


ANSWER = """
import sys
from muster.cli.main import main
code = main(sys.argv[1:])
print([name for name in ("torch", "numba", "envpool") if name in sys.modules])
sys.exit(code)
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ["train", "dqnn", "CartPole-v1"],
        [*TRAIN, "--lrr", "1"],
        [*TRAIN, "--lr", "abc"],
        [*TRAIN, "--batch-size", "65", "--buffer-size", "64"],
        [*TRAIN, "--model", "mpl"],
        [*TRAIN, "--hidden", "65536", "65536", "65536"],
        ["train", "dqn", "CartPole-v7"],
        ["train", "dqn", "CatrPole-v1"],
    ],
)
def test_a_mistake_is_answered_before_torch_is_loaded(arguments, tmp_path):
    answer = subprocess.run(
        [sys.executable, "-c", ANSWER, *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert answer.returncode == 2 and len(answer.stderr.splitlines()) == 3, answer.stderr
    assert answer.stdout == "[]\n", "loaded to say that"
    assert os.listdir(tmp_path) == []


def test_no_id_of_envpool_is_said_to_be_unknown_without_asking_it():
    envpool = pytest.importorskip("envpool")
    from muster.envs.envpool_ids import surely_not_in_envpool

    ids = [each for each in envpool.list_all_envs() if each not in gym.registry]
    assert [each for each in ids if surely_not_in_envpool(each, gym.registry)] == []
    assert surely_not_in_envpool("CartPole-v7", gym.registry)
