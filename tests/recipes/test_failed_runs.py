"""A run that fails says so in three lines, and leaves the whole traceback in its logs."""

import json
from dataclasses import asdict

import pytest
from faulty import SMALL, VARIABLE, Fault, run

import muster

MODES = [("ppo", 0), ("ppo", 2), ("dqn", 0), ("dqn", 3)]


def check(tmp_path, algo, workers, fault, **options):
    """Run it, and return the three lines and what is in the file that they name."""
    run_dir = tmp_path / "run"
    done = run(algo, run_dir, workers, fault, **options)
    assert done.returncode == 1, done.stderr
    lines = done.stderr.splitlines()
    assert [line[:7] for line in lines] == ["muster:", "  why: ", "  try: "], done.stderr
    assert done.stdout == ""
    file = lines[2].rpartition("look into ")[2]
    assert file.startswith(f"{run_dir}/logs/"), lines[2]
    with open(file) as log:
        return lines, log.read()


@pytest.mark.parametrize(("algo", "workers"), MODES)
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
