"""What a container or a limit does not allow is refused in three lines, before anything starts."""

import resource
import subprocess

import pytest
from faulty import command, environment

from muster import Parallel, container
from muster.cli.main import main
from muster.container import Limit
from muster.errors import OptionError
from muster.recipes.settings import resolve

LEFT = Limit(2**30, "what the container has left of 2.0 GiB")


def three_lines(text):
    lines = text.splitlines()
    assert [line[:7] for line in lines] == ["muster:", "  why: ", "  try: "], text
    return lines


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["dqn", "CartPole-v1", "--buffer-size", "50000000"], "--buffer-size 50000000"),
        (["ppo", "CartPole-v1", "--num-envs", "8192", "--rollout", "4096"], "--rollout 4096"),
    ],
)
def test_what_does_not_fit_into_the_container_is_refused(
    tmp_path, monkeypatch, capsys, words, option
):
    monkeypatch.setattr(container, "memory", lambda: LEFT)
    assert main(["train", *words, "--run-dir", str(tmp_path / "run")]) == 2
    lines = three_lines(capsys.readouterr().err)
    assert f"{option} does not fit into memory" in lines[0]
    assert "1.0 is what the container has left of 2.0 GiB" in lines[1]
    assert not (tmp_path / "run").exists()


def test_so_is_what_does_not_fit_below_a_real_limit_of_the_process(tmp_path):
    limit = 4 << 30

    def lower():
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    done = subprocess.run(
        command("dqn", tmp_path / "run", 0, buffer_size=200_000_000),
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
        preexec_fn=lower,
    )
    assert done.returncode == 2, done.stderr
    lines = three_lines(done.stderr)
    assert "4.0 is the limit of a process (ulimit -v)" in lines[1]
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("cores", "workers"), [(0.5, 1), (1.0, 1), (2.7, 2), (64.0, 4)])
def test_the_default_of_workers_is_what_the_container_may_use(monkeypatch, cores, workers):
    monkeypatch.setattr(container, "cores", lambda: cores)
    assert resolve("ppo", "CartPole-v1", {}).workers == workers


def nothing():
    raise AssertionError("it was started")


def test_more_nodes_than_processes_are_allowed_are_refused(monkeypatch):
    monkeypatch.setattr(
        "muster.engines.local.limits.processes",
        lambda: Limit(20, "what the container has left of 32 processes"),
    )
    with pytest.raises(OptionError) as caught:
        Parallel.runner(8)(nothing)
    assert caught.value.args[0] == "8 nodes need 26 processes and threads"
    assert (
        caught.value.args[1]
        == "only 20 more can be started: what the container has left of 32 processes"
    )
