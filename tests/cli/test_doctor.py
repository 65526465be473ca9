"""`muster doctor`: what it says about this machine and about others, made up here."""

import dataclasses
import importlib.metadata
import os
import re
import subprocess
import sys
import time

import gymnasium as gym
import pytest

from muster.cli import limits_here
from muster.cli.backends_here import Times, hint, say_times, times
from muster.cli.limits_here import EnvCost, Machine, say_limits
from muster.cli.main import main
from muster.installs import install

GOOD = Machine(
    cores=8, free_bytes=2**34, open_files=1024, compiled=True, gflops=100.0, copy_gb_per_s=10.0
)


def but(**changes):
    return dataclasses.replace(GOOD, **changes)


def test_doctor_names_gpu_ray_and_one_to_three_limits_in_80_columns(capsys):
    assert main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("  GPU ") for line in lines)
    assert any(line.startswith("  ray ") for line in lines)
    limits = lines[lines.index("what would limit training here") + 1 :]
    assert 1 <= len(limits) <= 3
    assert max(map(len, lines)) <= 80


def test_doctor_with_an_env_says_what_it_is_bound_by(capsys):
    assert main(["doctor", "CartPole-v1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    limits = lines[lines.index("what would limit training here") + 1 :]
    assert any("-bound" in line or "balanced" in line for line in limits)
    assert max(map(len, lines)) <= 80


def test_the_machine_is_measured_in_about_two_seconds():
    limits_here.kernels_are_compiled()  # loads numba, once in a process
    started = time.monotonic()
    here = limits_here.look_here()
    assert time.monotonic() - started < 10, "others may use the machine"
    assert here.gflops > 0 and here.copy_gb_per_s > 0 and here.open_files > 0 and here.cores > 0


@pytest.mark.parametrize(
    ("here", "said"),
    [
        (but(cores=1.0), "1 usable core: a second process"),
        (but(cores=1.5), "1.5 usable cores: a second process"),
        (but(cores=8.0), "8 usable cores: more processes than that"),
        (but(free_bytes=2**30), "only 1.0 GiB free; try a smaller --buffer-size"),
        (but(open_files=64), "64 per process; try ulimit -n 4096"),
        (but(compiled=False), "NUMBA_CACHE_DIR"),
        (but(gflops=1.24), "1.2 GFLOP/s"),
        (but(copy_gb_per_s=0.5), "0.5 GB/s"),
    ],
)
def test_each_limit_is_said_where_it_is_one_and_nowhere_else(here, said):
    assert said in "\n".join(say_limits(here))
    if here != GOOD:
        assert said not in "\n".join(say_limits(GOOD))


@pytest.mark.parametrize(
    ("cost", "said"),
    [
        (EnvCost(env_us=900, act_us=2, update_us=100), "environment-bound: 900 us a step"),
        (EnvCost(env_us=10, act_us=2, update_us=100), "learning-bound at 1 update a step: 100 us"),
        (EnvCost(env_us=60, act_us=20, update_us=60), "balanced at 1 update a step"),
        (EnvCost(env_us=39, act_us=1, update_us=42), "balanced at 1 update a step"),
        (EnvCost(env_us=2500, act_us=2, update_us=100), "2.5 ms a step"),
    ],
)
def test_an_env_is_compared_with_acting_and_learning(cost, said):
    lines = say_limits(GOOD, cost)
    assert said in lines[0]
    bad = but(free_bytes=0, compiled=False, open_files=1, gflops=0.1, copy_gb_per_s=0.1)
    crowded = say_limits(bad, cost)
    assert len(crowded) == 3 and said in crowded[1], "the env is not crowded out"
    assert all(len(line) <= 78 for line in [*lines, *crowded])


def test_a_gpu_is_named_with_the_option_that_uses_it(tmp_path, monkeypatch):
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'GPU 0: NVIDIA T4 (UUID: GPU-1)'\necho 'GPU 1: NVIDIA T4 (UU'")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert limits_here.gpu().startswith("NVIDIA T4 and 1 more, used with --device cuda")
    tool.write_text("#!/bin/sh\necho 'No devices were found'\nexit 6")
    assert "none" in limits_here.gpu() or "AMD" in limits_here.gpu()


def test_a_tool_that_hangs_does_not_hang_doctor(monkeypatch):
    def late(*words, timeout, **options):
        raise subprocess.TimeoutExpired(words, timeout)

    monkeypatch.setattr(limits_here.shutil, "which", lambda name: "nvidia-smi")
    monkeypatch.setattr(limits_here.subprocess, "run", late)
    assert limits_here.gpu().startswith(("none", "an AMD"))


def test_ray_is_named_or_the_line_that_installs_it(monkeypatch):
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "2.54.0")
    assert limits_here.ray() == "2.54.0"

    def absent(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", absent)
    assert limits_here.ray() == f"not installed; {install('ray')}"


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1", "FrozenLake-v1"])
def test_any_env_that_a_network_fits_is_timed(name):
    with gym.make(name) as env:
        cost = limits_here.time_env(env.observation_space, env.action_space, 50_000)
    assert cost.env_us == pytest.approx(20)
    assert 0 < cost.act_us < cost.update_us


def test_kernels_without_a_place_to_be_kept_are_noticed(tmp_path):

    code = "from muster.cli.limits_here import kernels_are_compiled as k; print(k())"
    for value, said in (("0", "False"), ("1", "True")):
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"MUSTER_NUMBA": value, "NUMBA_CACHE_DIR": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.stdout.strip() == said, done.stderr


def test_doctor_compares_both_backends_where_both_have_the_env(capsys):
    pytest.importorskip("envpool")
    assert main(["doctor", "CartPole-v1"]) == 0
    (line,) = [each for each in capsys.readouterr().out.splitlines() if "x with" in each]
    assert re.search(r"[\d.]+x with 8 envs, [\d.]+x with 64 envs$", line)


@pytest.mark.parametrize(
    ("ratios", "said"),
    [
        ((0.5, 3.0), "--backend envpool, beside gymnasium: 0.5x with 8 envs, 3.0x with 64 envs"),
        ((0.5, 1.1), "--backend envpool is no faster: 0.5x with 8 envs, 1.1x with 64 envs"),
        ((9e3, 9e3), "--backend envpool, beside gymnasium: 9000.0x with 8 envs, 9000.0x with"),
    ],
)
def test_the_faster_backend_is_recommended_only_if_it_is_faster(ratios, said):
    found = [Times(n, 1000.0, 1000 * ratio) for n, ratio in zip((8, 64), ratios, strict=True)]
    line = str(say_times(found))
    assert said in line and len(line) <= 78, "doctor indents it by two"


def test_an_env_of_one_backend_alone_is_not_compared():
    assert times("Pong-v5") == [] and say_times([]) is None


def test_a_run_is_told_of_the_other_backend_only_where_environments_limit_it():
    pytest.importorskip("envpool")
    assert "muster doctor CartPole-v1" in str(hint("CartPole-v1", "gymnasium", "env"))
    for env, backend, limit in (
        ("CartPole-v1", "envpool", "env"),
        ("CartPole-v1", "gymnasium", "learn"),
        ("module:Own-v0", "gymnasium", "env"),
    ):
        assert hint(env, backend, limit) is None
