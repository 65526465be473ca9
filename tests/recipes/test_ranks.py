"""Runs of several ranks that users start: the same bits, one run directory, and no hang."""

import json
import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from rank_processes import TOKEN, Ranks, free_address, wait_until

import muster
from muster import OptionError

pytestmark = pytest.mark.timeout(300)
EXAMPLES = Path(__file__).parents[2] / "examples"
SHORT = ("--env-steps", 2048, "--eval-every", 0, "--eval-episodes", 1, "--quiet", "--num-envs", 8)
SMALL = {"env_steps": 2048, "eval_every": 0, "eval_episodes": 1, "quiet": True, "num_envs": 8}
LONG = ("--env-steps", 10_000_000, "--checkpoint-every", 2048, *SHORT[2:])


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    ranks = Ranks(tmp_path_factory.mktemp("ranks"))
    yield ranks
    ranks.close()


def result(run):
    return json.loads((run / "result.json").read_text())


def lines(run):
    found = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    names = ("env_step", "train_iter", "train/loss", "train/policy_loss", "episode/return")
    return [{name: line[name] for name in names if name in line} for line in found]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """A run without ranks, to compare with."""
    place = tmp_path_factory.mktemp("alone") / "run"
    return muster.train("ppo", "CartPole-v1", run_dir=str(place), workers=0, **SMALL)


@pytest.mark.parametrize(
    "world", [2, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 3, 4))]
)
def test_any_number_of_ranks_comes_to_the_same_policy(ranks, alone, tmp_path, world):
    run = tmp_path / "run"
    started = ranks.run(world, "train", "ppo", "CartPole-v1", *SHORT, "--run-dir", run)
    assert result(run)["policy_sha256"] == alone.policy_sha256
    assert result(run)["workers"] == world
    assert lines(run) == lines(alone.run_dir), "metrics are written once"
    short = alone.policy_sha256[:12]
    assert all(f"policy {short}" in each.out for each in started)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"], "only rank 0 writes"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algo", "options"),
    [
        ("a2c", {}),
        ("pqn", {}),
        ("reinforce:reinforce", {}),
        ("ppo", {"lag": 1}),
        ("ppo", {"model": "lstm", "rollout": 32}),
        ("ppo", {"normalize_reward": True, "slots": 8}),
    ],
)
def test_other_programs_in_step_join_too(ranks, tmp_path, monkeypatch, algo, options):
    monkeypatch.chdir(EXAMPLES)
    run = str(tmp_path / "one")
    one = muster.train(algo, "CartPole-v1", run_dir=run, workers=0, **SMALL, **options)
    words = []
    for name, value in options.items():
        option = f"--{name.replace('_', '-')}"
        words += [option] if value is True else [option, value]
    argv = ("train", algo, "CartPole-v1", *SHORT, *words, "--run-dir", tmp_path / "two")
    ranks.run(2, *argv, cwd=EXAMPLES)
    assert result(tmp_path / "two")["policy_sha256"] == one.policy_sha256


def test_gloo_carries_the_same_bits(ranks, alone, tmp_path):
    run = tmp_path / "run"
    options = (*SHORT, "--run-dir", run, "--collective", "gloo")
    ranks.run(2, "train", "ppo", "CartPole-v1", *options)
    assert result(run)["policy_sha256"] == alone.policy_sha256


@pytest.mark.slow
def test_the_variables_of_torchrun_are_enough(ranks, alone, tmp_path):
    address = free_address()
    host, _, port = address.partition(":")
    run = tmp_path / "run"
    argv = ("train", "ppo", "CartPole-v1", *SHORT, "--run-dir", run)
    started = [
        ranks.start(
            rank,
            2,
            *argv,
            address=address,
            join="env",
            variables={
                "MASTER_ADDR": host,
                "MASTER_PORT": port,
                "RANK": str(rank),
                "WORLD_SIZE": "2",
            },
        )
        for rank in range(2)
    ]
    assert [each.wait() for each in started] == [0, 0], [each.err for each in started]
    assert result(run)["policy_sha256"] == alone.policy_sha256


def begun(ranks, run, address):
    """Start a long run of two ranks, and wait for its first checkpoint."""
    argv = ("train", "ppo", "CartPole-v1", *LONG, "--run-dir", run)
    both = [ranks.start(rank, 2, *argv, address=address) for rank in range(2)]
    wait_until(lambda: (run / "checkpoints" / "last.json").exists())
    return both


@pytest.mark.parametrize("lost", [1, pytest.param(0, marks=pytest.mark.slow)])
def test_a_killed_rank_ends_the_run_and_it_can_be_resumed(ranks, alone, tmp_path, lost):
    run, address = tmp_path / "run", free_address()
    both = begun(ranks, run, address)
    both[lost].process.kill()
    killed = time.monotonic()
    other = both[1 - lost]
    assert other.wait(30) == 1
    assert time.monotonic() - killed < 10
    assert f"rank {lost} is lost" in other.err and "muster resume" in other.err
    assert len(other.err.strip().splitlines()) == 3
    both[lost].wait()
    # Its last checkpoint is of any step; the run goes on as one that nobody ended.
    last = json.loads((run / "checkpoints" / "last.json").read_text())
    step = int(str(last).split("step-")[1].split("'")[0].split('"')[0])
    total = step + 4096
    address = free_address()
    argv = ("resume", run, "--env-steps", total, "--quiet")
    again = [ranks.start(0, 2, *argv, address=address)]
    again += [ranks.start(1, 2, "resume", "--env-steps", total, "--quiet", address=address)]
    assert [each.wait() for each in again] == [0, 0], [each.err for each in again]
    whole = {**SMALL, "env_steps": total, "checkpoint_every": 2048}
    one = muster.train("ppo", "CartPole-v1", run_dir=str(tmp_path / "one"), workers=0, **whole)
    assert result(run)["policy_sha256"] == one.policy_sha256


@pytest.mark.slow
def test_python_joins_as_the_command_line_does(ranks, alone, tmp_path, monkeypatch):
    monkeypatch.setenv("MUSTER_TOKEN", TOKEN)
    run, address = tmp_path / "run", free_address()
    half = ("--env-steps", 1024, *SHORT[2:])
    first = ranks.start(
        0, 2, "train", "ppo", "CartPole-v1", *half, "--run-dir", run, address=address
    )
    options = {**SMALL, "env_steps": 1024}
    mine = muster.train("ppo", "CartPole-v1", join=address, rank=1, world=2, **options)
    assert first.wait() == 0, first.err
    assert mine.policy_sha256 == result(run)["policy_sha256"]
    # Another number of ranks goes on with it.
    address = free_address()
    argv = ("resume", run, "--env-steps", 2048, "--quiet")
    others = [ranks.start(rank, 3, *argv, address=address) for rank in (0, 2)]
    mine = muster.resume("nowhere", join=address, rank=1, world=3, env_steps=2048, quiet=True)
    assert [each.wait() for each in others] == [0, 0], [each.err for each in others]
    assert mine.policy_sha256 == result(run)["policy_sha256"] == alone.policy_sha256
    assert mine.policy.act(np.zeros((1, 4), np.float32)).shape == (1,)


@pytest.mark.parametrize("asked", [1, pytest.param(0, marks=pytest.mark.slow)])
def test_a_signal_to_any_rank_stops_all_of_them_well(ranks, tmp_path, asked):
    run = tmp_path / "run"
    both = begun(ranks, run, free_address())
    os.kill(both[asked].process.pid, signal.SIGTERM)
    assert [each.wait(60) for each in both] == [143, 143], [each.err for each in both]
    assert result(run)["stopped_by"] == "signal"
    step = result(run)["env_steps"]
    assert (run / "checkpoints" / f"step-{step}").is_dir(), "the end was saved"


def test_a_rank_that_fails_is_named_by_the_others(ranks, tmp_path):
    address = free_address()
    argv = ("train", "ppo", "failing_env:Failing-v0", *LONG, "--workers", 0)
    broken = tmp_path / "failing_env.py"
    broken.write_text(
        "import os\n"
        "import gymnasium as gym\n"
        "from gymnasium.envs.classic_control import CartPoleEnv\n"
        "class Failing(CartPoleEnv):\n"
        "    steps = 0\n"
        "    def step(self, action):\n"
        "        Failing.steps += 1\n"
        "        if os.environ.get('FAILS') and Failing.steps > 2000:\n"
        "            raise ValueError('the simulator is out of milk')\n"
        "        return super().step(action)\n"
        "gym.register('Failing-v0', Failing, max_episode_steps=500)\n"
    )
    both = [
        ranks.start(
            rank,
            2,
            *argv,
            *("--run-dir", tmp_path / "run"),
            address=address,
            variables={"FAILS": "yes" if rank else ""},
            cwd=tmp_path,
        )
        for rank in range(2)
    ]
    assert [each.wait(60) for each in both] == [1, 1]
    assert "out of milk" in both[1].err
    assert "rank 1 failed" in both[0].err and "out of milk" in both[0].err


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("dqn", "CartPole-v1"), "dqn cannot train as ranks"),
        (("ppo", "CartPole-v1", "--workers", 2), "--workers 2 is not possible with join"),
        (("ppo", "CartPole-v1", "--engine", "ray"), "contradict"),
        (("ppo", "CartPole-v1", "--slots", 1, "--num-envs", 8), "--slots 1"),
    ],
)
def test_what_ranks_cannot_do_is_refused_before_they_meet(capsys, monkeypatch, argv, says):
    from muster.cli.main import main

    monkeypatch.setenv("MUSTER_TOKEN", "sixteen characters")
    join = ("--join", free_address(), "--rank", "0", "--world", "2")
    assert main(["train", *map(str, argv), *join]) == 2
    said = capsys.readouterr().err
    assert says in said and len(said.strip().splitlines()) == 3


@pytest.mark.parametrize("options", [("--rank", "1"), ("--world", "2"), ("--join", "nowhere")])
def test_half_of_the_options_is_a_mistake(capsys, options):
    from muster.cli.main import main

    assert main(["train", "ppo", "CartPole-v1", *options]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 3


def test_python_says_the_same_without_a_token(monkeypatch):
    monkeypatch.delenv("MUSTER_TOKEN", raising=False)
    with pytest.raises(OptionError, match="no token"):
        muster.train("ppo", "CartPole-v1", join=free_address(), rank=0, world=2)


@pytest.mark.slow
def test_a_new_run_takes_its_first_policy_from_rank_0(ranks, alone, tmp_path):
    one = muster.train(
        "ppo",
        "CartPole-v1",
        run_dir=str(tmp_path / "one"),
        workers=0,
        from_checkpoint=str(alone.run_dir),
        **SMALL,
    )
    address = free_address()
    argv = ("train", "ppo", "CartPole-v1", *SHORT, "--run-dir", tmp_path / "two")
    both = [ranks.start(0, 2, *argv, "--from-checkpoint", alone.run_dir, address=address)]
    both += [ranks.start(1, 2, *argv, "--from-checkpoint", "/nowhere", address=address)]
    assert [each.wait() for each in both] == [0, 0], [each.err for each in both]
    assert result(tmp_path / "two")["policy_sha256"] == one.policy_sha256


@pytest.mark.slow
def test_a_run_that_has_reached_its_limit_is_only_completed(ranks, tmp_path):
    run = tmp_path / "run"
    ranks.run(2, "train", "ppo", "CartPole-v1", *SHORT, "--run-dir", run)
    before = result(run)
    (run / "result.json").unlink()
    both = ranks.run(2, "resume", run, "--quiet")
    assert result(run)["policy_sha256"] == before["policy_sha256"]
    assert f"policy {before['policy_sha256'][:12]}" in both[1].out
