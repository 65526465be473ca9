"""`--engine` and `--address`: what is refused, before anything is written or started."""

import subprocess
import sys

import pytest

from muster.installs import install

pytestmark = pytest.mark.timeout(600)

WITHOUT_RAY = """
import sys
sys.modules["ray"] = None  # as if it were not installed
from muster.cli.main import main
sys.exit(main(sys.argv[1:]))
"""
SMALL = ("--env-steps", "1024", "--eval-every", "0", "--eval-episodes", "1", "--quiet")


def muster(place, *words, code=None):
    start = ["-m", "muster.cli.main"] if code is None else ["-c", code]
    command = [sys.executable, *start, "train", "ppo", "CartPole-v1", *words]
    return subprocess.run(
        [*command, "--run-dir", str(place)], capture_output=True, text=True, timeout=300
    )


def refused(done, place):
    """Whether it was in three lines, with code 2, and nothing was written."""
    assert done.returncode == 2, done.stderr
    assert not place.exists()
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 3 and lines[1].startswith("  why: ") and lines[2].startswith("  try: ")
    return lines


@pytest.mark.parametrize("workers", [pytest.param("0", marks=pytest.mark.slow), "2"])
def test_without_ray_training_works(tmp_path, workers):
    done = muster(tmp_path / "run", "--workers", workers, *SMALL, code=WITHOUT_RAY)
    assert done.returncode == 0, done.stderr


def test_without_ray_the_ray_engine_says_what_to_install(tmp_path):
    done = muster(tmp_path / "run", "--engine", "ray", *SMALL, code=WITHOUT_RAY)
    assert install("ray") in refused(done, tmp_path / "run")[2]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--engine", "rya"), "--engine ray"),
        (("--engine", "ray", "--workers", "0"), "--workers 2"),
        (("--address", "127.0.0.1:6379"), "--engine ray"),
        (("--engine", "ray", "--address", "nowhere"), "HOST:PORT"),
        (("--engine", "ray", "--address", "127.0.0.1:1"), "127.0.0.1:1"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(tmp_path, words, said):
    lines = refused(muster(tmp_path / "run", *words, *SMALL), tmp_path / "run")
    assert said in "".join(lines)
