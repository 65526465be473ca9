"""A run that fails says so in three lines, and leaves the whole traceback in its logs."""

import json
from contextlib import contextmanager
from dataclasses import asdict

import gymnasium as gym
import numpy as np
import pytest
from faulty import SMALL, VARIABLE, Fault, run

import muster
from muster.cli.main import main

MODES = [("ppo", 0), ("ppo", 2), ("dqn", 0), ("dqn", 3)]


def check(tmp_path, algo, workers, fault, **options):
    """Run it, and return the three lines and what is in the file that they name."""
    run_dir = tmp_path / "run"
    done = run(algo, run_dir, workers, fault, **options)
    assert done.returncode == 1, done.stderr
    lines = done.stderr.splitlines()
    assert [line[:7] for line in lines] == ["muster:", "  why: ", "  try: "], done.stderr
    assert done.stdout == ""
    file = lines[2].rpartition("see ")[2]
    assert file.startswith(f"{run_dir}/logs/"), lines[2]
    with open(file) as log:
        return lines, log.read()


@pytest.mark.parametrize(
    ("algo", "workers"),
    [*MODES[:2], *(pytest.param(*mode, marks=pytest.mark.slow) for mode in MODES[2:])],
)
def test_an_env_that_raises_leaves_its_traceback_in_the_log(tmp_path, algo, workers):
    lines, log = check(tmp_path, algo, workers, Fault("step"))
    assert "step is broken and says so on two lines" in lines[0]
    assert "faulty.py:" in lines[1]
    assert log.startswith("Traceback (most recent call last):")
    assert 'raise RuntimeError(f"{call} is broken' in log
    assert "above" not in "".join(lines)


@pytest.mark.slow
@pytest.mark.parametrize(("algo", "workers"), MODES)
@pytest.mark.parametrize("fault", [Fault("init", 3), Fault("reset", 2)], ids=lambda f: f.call)
def test_so_does_one_that_raises_in_init_and_reset(tmp_path, algo, workers, fault):
    lines, log = check(tmp_path, algo, workers, fault)
    assert f"{fault.call} is broken" in lines[0]
    assert 'raise RuntimeError(f"{call} is broken' in log


@pytest.mark.slow
@pytest.mark.parametrize("role", ["actor", "evaluator"])
def test_the_node_that_raised_is_named_with_its_role(tmp_path, role):
    lines, log = check(tmp_path, "dqn", 3, Fault("step", 5, role=role))
    assert f"({role}) raised EnvError" in lines[0]
    assert lines[2].endswith({"evaluator": "node.1.log", "actor": "node.2.log"}[role])
    assert 'raise RuntimeError(f"{call} is broken' in log


@pytest.mark.slow
@pytest.mark.parametrize(("algo", "workers"), MODES)
def test_so_does_a_model_that_raises(tmp_path, algo, workers):
    model = {"dqn": "faulty:Net", "ppo": "faulty:ActorCritic"}[algo]
    lines, log = check(tmp_path, algo, workers, Fault("forward", 30), model=model)
    assert "RuntimeError: forward is broken and says so on two lines" in lines[0]
    assert "faulty.py:" in lines[1]
    assert 'raise RuntimeError(f"{call} is broken' in log


def test_from_python_the_exception_is_the_models_own_with_a_note_of_the_file(tmp_path, monkeypatch):
    run_dir = tmp_path / "run"
    monkeypatch.setenv(VARIABLE, json.dumps(asdict(Fault("forward", 30))))
    with pytest.raises(RuntimeError, match="forward is broken") as caught:
        muster.train(
            "dqn",
            "CartPole-v1",
            model="faulty:Net",
            run_dir=str(run_dir),
            env_steps=256,
            quiet=True,
            **SMALL["dqn"],
        )
    file = run_dir / "logs" / "main.log"
    assert caught.value.__notes__[-1] == f"the traceback is in {file}"
    assert 'raise RuntimeError(f"{call} is broken' in file.read_text()


class Exits(gym.Env):
    """Asks Python to exit in its 20th step, as a viewer does whose window was closed."""

    observation_space = gym.spaces.Box(-1, 1, (2,))
    action_space = gym.spaces.Discrete(2)

    def __init__(self, error=SystemExit, call="step"):
        self.error, self.call, self.steps = error, call, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if self.call == "reset":
            raise self.error(0)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.steps += 1
        if self.steps == 20:
            raise self.error(0)
        return np.zeros(2, np.float32), 0.0, self.steps % 5 == 0, False, {}


@contextmanager
def registered(env, **kwargs):
    """Have an environment known by its class's name."""
    name = f"{env.__name__}-v0"
    gym.register(name, env, kwargs=kwargs)
    try:
        yield
    finally:
        del gym.registry[name]


@pytest.mark.parametrize(
    ("call", "error"),
    # Before a run begins an env's own KeyboardInterrupt cannot be told from Ctrl-C.
    [("step", SystemExit), ("step", KeyboardInterrupt), ("reset", SystemExit)],
)
@pytest.mark.parametrize("algo", ["ppo", "dqn", "impala"])
def test_an_env_that_exits_has_failed_and_does_not_end_the_command_well(
    tmp_path, algo, error, call
):
    with registered(Exits, error=error, call=call), pytest.raises(muster.MusterError) as caught:
        muster.train(
            algo, "Exits-v0", env_steps=4096, workers=0, num_envs=4, run_dir=str(tmp_path / "run"),
            quiet=True,
        )  # fmt: skip
    assert error.__name__ in str(caught.value)
    if call == "reset":  # found out before the run began
        return
    assert caught.value.run_failed
    assert (
        f"raise self.error(0)\n{error.__name__}: 0"
        in (tmp_path / "run" / "logs" / "main.log").read_text()
    )
    assert not (tmp_path / "run" / "result.json").exists()


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_so_has_a_hook_that_exits(tmp_path, error):
    def leaves(ctx):
        raise error(0)

    with pytest.raises(muster.MusterError, match=f"{error.__name__}: 0\n.*no signal") as caught:
        muster.train(
            "dqn", "CartPole-v1", use=[leaves], env_steps=512, run_dir=str(tmp_path / "run"),
            quiet=True,
        )  # fmt: skip
    assert caught.value.run_failed and "logs/main.log" in str(caught.value)


def test_an_env_that_exits_has_failed_for_doctor_too(capsys):
    with registered(Exits):
        assert main(["doctor", "Exits-v0"]) == 1
    assert "SystemExit" in capsys.readouterr().out
