"""`muster bench` as a person meets it."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from gymnasium import spaces

from muster import OptionError
from muster.cli.bench import table
from muster.cli.main import main
from muster.recipes.algorithms import ALGORITHMS, configuration_of
from muster.recipes.bench import BenchReport, bench

PARTS = ["env", "act", "learn", "exchange", "rest"]


@pytest.mark.slow
def test_a_bench_prints_a_small_table_and_writes_all_of_it(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    told = ["bench", "ppo", "CartPole-v1", "--seconds", "1", "--json", "found.json"]
    assert main(told) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert sum("<- limits" in line for line in lines) == 1
    assert [line.split()[0] for line in lines if "%   " in line] == PARTS
    written = json.loads((tmp_path / "found.json").read_text())
    assert 0 < written["eta"] <= 1.5 and 0 < written["rho"] <= 1.5
    assert sum(written["split"].values()) == pytest.approx(1)
    assert written["limited_by"] == max(written["split"], key=written["split"].get)
    assert [path.name for path in tmp_path.iterdir()] == ["found.json"]


@pytest.mark.parametrize("algo", sorted(set(ALGORITHMS) - {"ppo"}))
def test_every_algorithm_is_measured(algo):
    config, env, more = configuration_of(algo), "CartPole-v1", {}
    try:
        config.check_actions(spaces.Discrete(2))
    except OptionError:
        env = "Pendulum-v1"
    if hasattr(config, "learning_starts"):
        more = {"learning_starts": 256}
    found = bench(algo, env, seconds=1.5, workers=0, hidden=(16,), **more)
    assert found.rho == pytest.approx(found.steps_per_s / found.bare_steps_per_s)
    assert found.eta == pytest.approx(found.steps_per_s / found.bound_steps_per_s)
    assert found.details["epochs"] > 0 and sum(found.split.values()) == pytest.approx(1)
    assert "--slots" not in (found.advice or "") or hasattr(config, "slots")


def test_options_of_the_algorithm_are_options_of_its_bench():
    found = bench(seconds=0.2, workers=0, num_envs=4, hidden=(16,), rollout=16)
    assert found.workers == 0 and found.num_envs == 4 and found.details["cores"] == 1
    assert found.details["flops"] == 2 * (2 * 4 * 16 + 16 * 2 + 16 * 1)
    assert found.rho == pytest.approx(found.steps_per_s / found.bare_steps_per_s)
    assert found.eta == pytest.approx(found.steps_per_s / found.bound_steps_per_s)


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        (["ppoo"], ["no algorithm 'ppoo'", "the nearest is 'ppo'"]),
        (["dqn", "CartPole-v1", "--slots", "4"], ["there is no option --slots"]),
        (["ppo", "CartPole-v7"], ["No environment 'CartPole-v7'", "muster bench ppo CartPole-v1"]),
        (["ppo", "CartPole-v1", "x"], ["x belongs to no option"]),
        (["--secnds", "1"], ["no option --secnds", "nearest is --seconds"]),
        (["--seconds", "0"], ["--seconds 0.0 is not possible", "muster bench ppo CartPole-v1"]),
        (["--seconds", "soon"], ["--seconds soon is not possible", "it must be a number"]),
        (["--workers", "5"], ["--workers 5 and --slots 4"]),
        (["--json", "no/such/file.json"], ["cannot be written", "--json bench.json"]),
        (["--json", "."], ["cannot be written"]),
        (["--resume"], ["there is no option --resume"]),
    ],
)
def test_a_mistake_gets_three_lines_code_2_and_leaves_nothing_behind(
    arguments, lines, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert main(["bench", *arguments]) == 2
    shown = capsys.readouterr().err
    assert len(shown.splitlines()) == 3 and shown.startswith("muster: ")
    assert all(line in shown for line in lines), shown
    assert list(tmp_path.iterdir()) == []


def test_help_explains_rho_and_eta_before_the_options():
    done = subprocess.run(
        [sys.executable, "-m", "muster.cli.main", "bench", "--help"],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    before, _, options = done.stdout.partition("─ options ─")
    assert "rho: trained steps/s" in before and "eta: trained steps/s" in before
    assert options.index("--seconds") < options.index("--lr ")


@pytest.mark.parametrize("advice", [None, "--num-envs 65536: " + "x" * 50])
def test_a_table_of_large_numbers_keeps_to_80_columns(advice):
    report = BenchReport(
        algo="ppo",
        env="some.package.with.a.long.name:" + "Environment" * 5 + "-v0",
        workers=256,
        num_envs=65_536,
        env_steps=10**15,
        steps_per_s=1e9,
        bare_steps_per_s=1e10,
        bound_steps_per_s=1e10,
        rho=0.1,
        eta=0.1,
        split=dict.fromkeys(PARTS, 0.2),
        limited_by="rest",
        advice=advice,
        details={"cores": 256},
    )
    lines = table(report)
    assert max(map(len, lines)) <= 80
    assert "256 workers, 256 cores, 65536 environments" in lines[0]
    assert len(lines) == 11 + (advice is not None)
    assert lines[10] == "the network is compiled"
    report.details["by_torch"] = "observations go through " + "LongName" * 10
    assert table(report)[10].startswith("the network is run by torch, slower: observations go")
    assert max(map(len, table(report))) <= 80


@pytest.mark.timeout(600)
@pytest.mark.parametrize("workers", ["0", pytest.param("2", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "number",
    [
        signal.SIGINT,
        *(pytest.param(n, marks=pytest.mark.slow) for n in (signal.SIGTERM, signal.SIGHUP)),
    ],
)
def test_a_signal_ends_a_bench_with_its_code_and_what_was_measured(tmp_path, number, workers):
    command = [sys.executable, "-m", "muster", "bench", "ppo", "CartPole-v1"]
    command += ["--seconds", "600", "--workers", workers]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    ) as bench:
        deadline = time.monotonic() + 300
        while not any(path.stat().st_size for path in tmp_path.glob("*/run/metrics.jsonl")):
            assert bench.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        bench.send_signal(number)
        said, _ = bench.communicate(timeout=300)
    assert bench.returncode == 128 + number
    assert said == "" or said.endswith("these numbers are of the training until then\n")
    assert list(tmp_path.glob("muster-bench-*")) == []
