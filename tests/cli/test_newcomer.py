"""What a newcomer mistypes is answered in three lines that fit a terminal, before torch loads."""

import contextlib
import os
import subprocess
import sys

import pytest

import muster
from muster.cli.main import VERBS, main
from muster.recipes.algorithms import ALGORITHMS

PROGRAM = """
import sys
from muster.cli.main import VERBS, main
code = main(sys.argv[1:])
print("torch" in sys.modules)
raise SystemExit(code)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder in which there is a run, runs/first."""
    place = tmp_path_factory.mktemp("newcomer")
    muster.train(
        "ppo", "CartPole-v1", workers=0, env_steps=256, eval_episodes=1, quiet=True,
        run_dir=str(place / "runs" / "first"),
    )  # fmt: skip
    return place


@pytest.mark.parametrize(
    ("words", "fix"),
    [
        ("train pp0 CartPole-v1", "muster train ppo CartPole-v1"),
        ("bench pp0 CartPole-v1", "muster bench ppo CartPole-v1"),
        ("train PPO CartPole-v1", "muster train ppo CartPole-v1"),
        ("train CartPole-v1 ppo", "muster train ppo CartPole-v1"),
        ("train pp0", "muster train ppo CartPole-v1"),
        ("train ppo CartPol-v1", "muster train ppo CartPole-v1"),
        ("train dqn Pendulum-v1", "muster train ppo Pendulum-v1"),
        ("train sac CartPole-v1", "muster train dqn CartPole-v1, or muster train ppo CartPole-v1"),
        ("train ppo CartPole-v1 --model nlp", "muster train ppo CartPole-v1 --model mlp"),
        ("train ppo CartPole-v1 --model absent:Net", 'python -c "import absent"'),
        (
            "train ppo CartPole-v1 --run-dir runs/first",
            "muster resume runs/first, or another --run-dir",
        ),
        ("train ppo CartPole-v1 --from-checkpoint runs/fir5t", "runs/first, which exists"),
        ("resume runs/fir5t", "runs/first, which exists"),
        ("eval runs/fir5t", "runs/first, which exists"),
        ("play runs/fir5t", "runs/first, which exists"),
        ("play runs/first", "muster play runs/first --video play.mp4"),
        ("resume runs/first --seed 3", "leave seed out, or start a new run"),
        ("resume runs/first --lrr 3", "muster resume runs/first ... --lr"),
        ("doctor CartPol-v1", "muster doctor CartPole-v1"),
    ],
)
def test_a_slip_is_answered_in_three_short_lines_before_torch_is_loaded(
    folder, monkeypatch, words, fix
):
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER", "SDL_VIDEO_DRIVER"):
        monkeypatch.delenv(name, raising=False)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words.split()],
        cwd=folder, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "False\n"), done.stderr
    what, why, fixed = done.stderr.splitlines()
    assert what.startswith("muster: ") and why.startswith("  why: ")
    assert fixed == f"  try: {fix}"
    assert max(map(len, (what, why, fixed))) <= 80, done.stderr


@pytest.mark.parametrize(
    "words",
    [
        "--help",
        *(f"{verb} --help" for verb in VERBS),
        "resume runs/first --help",
        *(f"train {algo} CartPole-v1 --help" for algo in ALGORITHMS if algo != "sac"),
        "train sac Pendulum-v1 --help",
    ],
)
def test_help_fits_a_terminal(folder, monkeypatch, capsys, words):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "80")
    with contextlib.suppress(SystemExit):
        main(words.split())
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 5
    assert [line for line in lines if len(line) > 80] == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("train ppo CartPole-v1 --config pipe", "'pipe' cannot be read"),
        ("resume runs/first --config pipe", "'pipe' cannot be read"),
        ("bench ppo CartPole-v1 --seconds 1 --json pipe", "--json 'pipe' cannot be written"),
        ("play runs/first --video pipe.mp4", "pipe.mp4 cannot be written"),
    ],
)
def test_a_named_pipe_with_nobody_at_its_other_end_is_refused_at_once(folder, words, said):
    for name in ("pipe", "pipe.mp4"):
        if not (folder / name).exists():
            os.mkfifo(folder / name)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words.split()],
        cwd=folder, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "False\n"), done.stderr
    what, *rest = done.stderr.splitlines()
    assert what == f"muster: {said}" and len(rest) == 2


def test_options_may_come_from_a_pipe(folder):
    done = subprocess.run(
        [
            *("bash", "-c", 'exec "$0" -m muster train ppo CartPole-v1 --config <(echo lr: -1)'),
            sys.executable,
        ],
        cwd=folder, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, "--lr -1" in done.stderr) == (2, True), done.stderr
