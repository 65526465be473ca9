"""`muster play` where there is no screen, and where one was chosen."""

import os
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest

from muster.cli.film import Film
from muster.cli.main import main
from muster.cli.play import CannotShowError, _check_screen

SMALL = ["--env-steps", "64", "--eval-every", "0", "--eval-episodes", "1", "--quiet"]
SCREENS = ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER", "SDL_VIDEO_DRIVER")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("runs") / "my first")
    assert main(["train", "dqn", "CartPole-v1", "--run-dir", path, *SMALL]) == 0
    return path


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="others always have a screen")
def test_without_a_screen_it_says_so_in_three_lines_and_how_to_record(run, monkeypatch, capsys):
    for name in SCREENS:
        monkeypatch.delenv(name, raising=False)
    assert main(["play", run]) == 2
    assert capsys.readouterr().err == (
        "muster: no screen to open a window on\n"
        "  why: neither DISPLAY nor WAYLAND_DISPLAY is set, as in a container or over ssh\n"
        f"  try: muster play '{run}' --video play.mp4\n"
    )


def test_a_run_that_is_not_there_is_said_before_that(monkeypatch, capsys):
    for name in SCREENS:
        monkeypatch.delenv(name, raising=False)
    assert main(["play", "nowhere"]) == 2
    assert "there is no run in" in capsys.readouterr().err


def test_a_video_is_made_without_a_word_about_screens(run, tmp_path):
    absent = ("XDG_RUNTIME_DIR", "DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER")
    done = subprocess.run(
        [sys.executable, "-m", "muster", "play", run, "--video", tmp_path / "x.mp4"],
        env={name: value for name, value in os.environ.items() if name not in absent},
        capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0 and done.stderr == ""


def test_a_video_needs_no_screen(run, tmp_path, monkeypatch):
    for name in SCREENS:
        monkeypatch.delenv(name, raising=False)
    film = tmp_path / "play.mp4"
    assert main(["play", run, "--episodes", "1", "--video", str(film)]) == 0
    assert film.stat().st_size > 1000


@pytest.mark.parametrize("name", SCREENS)
def test_a_screen_or_a_driver_that_the_user_chose_is_taken(name):
    _check_screen("run", "linux", {name: "dummy"})
    with pytest.raises(CannotShowError):
        _check_screen("run", "linux", {name: ""})


@pytest.mark.parametrize("system", ["darwin", "win32"])
def test_other_systems_always_have_a_screen(system):
    _check_screen("run", system, {})


def test_a_policy_is_played_on_the_driver_that_was_chosen(run, monkeypatch, capsys):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    assert main(["play", run, "--episodes", "1"]) == 0
    assert "episode 1: return" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["play.gif", "play.webm"])
def test_other_kinds_of_video_are_written_too(run, tmp_path, name):
    assert main(["play", run, "--episodes", "1", "--video", str(tmp_path / name)]) == 0
    assert (tmp_path / name).stat().st_size > 1000


@pytest.mark.parametrize("name", ["play.txt", "play", "folder.mp4"])
def test_a_video_that_cannot_be_written_is_refused_before_anything_is_played(
    run, tmp_path, name, capsys
):
    (tmp_path / "folder.mp4").mkdir()
    assert main(["play", run, "--video", str(tmp_path / name)]) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and len(shown.err.splitlines()) == 3


@pytest.mark.filterwarnings("ignore::muster.errors.MusterWarning")  # evaluations are cut short
@pytest.mark.parametrize("env", ["Pong-v5", "Hopper-v5"])
def test_a_run_on_envpool_is_played_on_envpool_or_refused_before_it_begins(
    tmp_path, env, capsys, monkeypatch
):
    pytest.importorskip("envpool")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    place = str(tmp_path / "run")
    words = ["train", "ppo", env, "--backend", "envpool", "--env-steps", "64", "--num-envs", "4"]
    words += ["--rollout", "16", "--minibatches", "2", "--epochs", "1", "--workers", "0"]
    words += ["--eval-episodes", "1", "--eval-max-steps", "20", "--quiet", "--run-dir", place]
    assert main(words) == 0
    capsys.readouterr()
    assert main(["play", place]) == 2
    assert "opens no window" in capsys.readouterr().err
    code = main(["play", place, "--episodes", "1", "--video", str(tmp_path / "play.mp4")])
    shown = capsys.readouterr()
    if code:  # MuJoCo needs OpenGL for a picture
        assert env == "Hopper-v5" and "cannot be drawn by EnvPool" in shown.err
        assert len(shown.err.splitlines()) == 3 and shown.out == ""
    else:
        assert (tmp_path / "play.mp4").stat().st_size > 1000


@pytest.mark.parametrize("name", ["long.mp4", "long.gif"])
def test_a_long_video_needs_no_memory_for_its_pictures(tmp_path, name):
    picture = np.zeros((201, 301, 3), np.uint8)  # odd sides, which codecs do not take
    tracemalloc.start()
    with Film(tmp_path / name) as film:
        for number in range(300):
            picture[:, number % 301] = number % 256
            film.add(picture.copy())
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (tmp_path / name).stat().st_size > 1_000
    assert most < 30 * picture.nbytes, "it is a tenth of all pictures"
