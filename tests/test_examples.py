"""Every example runs, and so do the README's programs, each in a process of its own.

The pages under docs/ are in test_docs.py.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
STAGES = sorted((ROOT / "examples" / "tutorial").glob("stage_*.py"))


def run(arguments, folder):
    done = subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def test_all_stages_of_the_tutorial_are_here():
    assert [stage.stem.split("_", 2)[2] for stage in STAGES] == [
        "loop",
        "one_middleware",
        "three_middleware",
        "context",
        "step_timer",
        "async",
    ]


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.stem)
def test_a_stage_of_the_tutorial_learns_to_cross_the_corridor_and_saves(stage, tmp_path):
    out = run([stage], tmp_path)
    assert re.search(r"train_iter +\d+  envstep +\d+  return  0\.89", out)
    assert ("StepTimer after" in out) == (stage.stem in ("stage_5_step_timer", "stage_6_async"))
    saved = json.loads((tmp_path / "runs/tutorial/q_table.json").read_text())
    assert saved["train_iter"] > 0
    for left, right in saved["values"][:-1]:
        assert right > left


def test_all_serial_stages_do_the_same_in_the_same_number_of_updates(tmp_path):
    evaluations = {
        stage.stem: re.findall(r"train_iter.*", run([stage], tmp_path)) for stage in STAGES[:5]
    }
    assert len({tuple(lines) for lines in evaluations.values()}) == 1, evaluations


@pytest.mark.slow
def test_an_algorithm_of_ones_own_trains_from_its_script(tmp_path):
    out = subprocess.run(
        [sys.executable, "-W", "error", ROOT / "examples" / "reinforce.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=110,
        check=True,
    ).stdout
    assert re.match(r"mean return \d+ after 4,096 steps\nit would do [01]\n", out)


def test_the_typed_context_example_runs(tmp_path):
    assert run([ROOT / "examples" / "typed_context.py"], tmp_path).splitlines()[-1] == (
        "train_iter 4  loss 0.062"
    )


def test_the_tutorial_with_real_workers_solves_cartpole(tmp_path):
    out = run([ROOT / "examples" / "tutorial_cartpole.py"], tmp_path)
    *_, evaluated, saved = out.splitlines()
    assert float(evaluated.split("return")[1]) >= 475
    assert re.fullmatch("policy [0-9a-f]{12}", saved)


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["tutorial_three_nodes.py"], marks=pytest.mark.slow),
        pytest.param(["tutorial_evaluator_apart.py", "--how", "loop"], marks=pytest.mark.slow),
        pytest.param(["tutorial_evaluator_apart.py", "--how", "wait"], marks=pytest.mark.slow),
        pytest.param(["tutorial_evaluator_apart.py", "--nodes", "1"], marks=pytest.mark.slow),
    ],
    ids=" ".join,
)
def test_the_tutorial_on_several_nodes_solves_cartpole_and_saves(arguments, tmp_path):
    program, *options = arguments
    out = run([ROOT / "examples" / program, *options], tmp_path)
    assert max(float(mean) for mean in re.findall(r"return +([0-9.]+)", out)) >= 475
    assert re.search("policy [0-9a-f]{12}", out)


def test_the_programs_of_the_readme_do_what_it_says(tmp_path):
    readme = (ROOT / "README.md").read_text()
    training, loop, nodes = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    out = run(["-c", loop], tmp_path)
    assert "saved after 10 updates\n" in out and out.splitlines()[-1] == "80 9"
    assert "`saved after 10 updates`" in readme and "`80 9`" in readme
    (tmp_path / "nodes.py").write_text(nodes)
    assert run(["nodes.py"], tmp_path) == "[False, True]\n" and "`[False, True]`" in readme
    steps, acts = run(["-c", training], tmp_path).split()
    assert int(steps) >= 2_000 and acts == "True"


def test_the_error_that_the_readme_shows_is_the_one_that_users_see():
    from muster import MiddlewareError, Task

    def collect(env, buffer): ...

    with pytest.raises(MiddlewareError) as caught:
        Task().use(collect)
    for line in str(caught.value).splitlines():
        assert line.strip() in (ROOT / "README.md").read_text()


@pytest.mark.timeout(600)
def test_ppo_as_a_program_of_ones_own_learns_the_same_in_one_process_and_in_two(tmp_path):
    alone, together = run([ROOT / "examples/ppo_program.py"], tmp_path).splitlines()
    assert alone.split(":")[1].split() == together.split(":")[1].split()
    assert int(alone.rsplit(" ", 1)[1]) > 100
