"""The pages under docs/: their programs run, their commands parse, and they name what there is."""

import dataclasses
import io
import json
import re
import shlex
import subprocess
import sys
from contextlib import chdir, redirect_stdout, suppress
from pathlib import Path

import gymnasium as gym
import pytest

import muster
from muster.cli.main import VERBS, main
from muster.recipes.algorithms import ALGORITHMS, configuration_of
from muster.recipes.options import TrainOptions

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
OF_ALGORITHMS = {algo: (ROOT / "docs" / f"{algo}.md").read_text() for algo in ALGORITHMS}
DQN = OF_ALGORITHMS["dqn"]
TROUBLE = (ROOT / "docs" / "troubleshooting.md").read_text()
BLOCK = re.compile(r"```(\w+)\n(.*?)```(?:\n\nIt prints `([^`]*)`)?", re.DOTALL)


def blocks(kind):
    return [
        pytest.param(code, printed, id=f"{page.name}-{number}")
        for page in PAGES[1:]
        for number, (found, code, printed) in enumerate(BLOCK.findall(page.read_text()))
        if found == kind
    ]


def name_of(page):
    return page.name


@pytest.mark.parametrize(("code", "printed"), blocks("python"))
def test_a_program_of_the_docs_runs_and_prints_what_they_say(code, printed, tmp_path, warm_python):
    if "Parallel.runner(" in code:  # its nodes import the program, so it is in a file
        (tmp_path / "program.py").write_text(code)
        done = subprocess.run(
            [sys.executable, "-W", "error", "program.py"],
            cwd=tmp_path, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
    else:
        done = warm_python.run(code, cwd=tmp_path, warnings=["error", "ignore::ResourceWarning"])
    assert (done.returncode, done.stderr) == (0, "")
    assert printed, "the page does not say what it prints"
    assert done.stdout.splitlines()[-1] == printed


@pytest.fixture(scope="module")
def options_of():
    def ask(verb, algo):
        words = [verb, algo, "CartPole-v1"] if verb in ("train", "tune") else [verb]
        # In the folder of the algorithm of docs/own_algorithm.md.
        with (
            chdir(ROOT / "examples"),
            redirect_stdout(io.StringIO()) as shown,
            suppress(SystemExit),
        ):
            main([*words, "--help"])
        return set(re.findall(r"--[a-z][a-z0-9-]*", shown.getvalue()))

    known = {}

    def options(verb, algo="dqn"):
        if (verb, algo) not in known:
            known[verb, algo] = ask(verb, algo)
        return known[verb, algo]

    return options


@pytest.mark.parametrize(("code", "printed"), blocks("sh"))
def test_a_command_of_the_docs_has_a_verb_and_options_that_there_are(code, printed, options_of):
    for line in code.splitlines():
        program, verb, *rest = shlex.split(line, comments=True)
        assert program == "muster" and verb in VERBS
        used = {word for word in rest if word.startswith("--")}
        algo = rest[0] if verb in ("train", "tune") and rest[0][0] != "-" else "dqn"
        # A resumed run can be told what a new one can, and which code is meant.
        code = {"--algo", "--env"} if verb == "resume" else set()
        assert used - code <= options_of("train" if verb == "resume" else verb, algo)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_link_leads_to_a_file_that_is_there(page):
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text())
    absent = [link for link in links if ":" not in link and not (page.parent / link).exists()]
    assert absent == []


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_the_page_of_an_algorithm_names_every_option(algo):
    fields = dataclasses.fields(configuration_of(algo)) + dataclasses.fields(TrainOptions)
    names = ["--" + each.name.replace("_", "-") for each in fields]
    assert [name for name in names if f"`{name}`" not in OF_ALGORITHMS[algo]] == []


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_the_page_of_an_algorithm_names_no_option_that_is_not_there(algo, options_of):
    table = OF_ALGORITHMS[algo].partition("## Options")[2].partition("## Metrics")[0]
    assert set(re.findall(r"--[a-z][a-z0-9-]*", table)) <= options_of("train", algo)


def env_for(algo):
    """Return an environment whose actions the algorithm can choose."""
    try:
        configuration_of(algo).check_actions(gym.spaces.Discrete(2))
    except muster.OptionError:
        return "Pendulum-v1"
    return "CartPole-v1"


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_the_page_of_an_algorithm_explains_every_metric_and_no_other(algo, tmp_path):
    run = tmp_path / "run"
    small = ["--env-steps", "2048", "--eval-episodes", "2", "--workers", "0", "--quiet"]
    small += ["--hidden", "16", "16"]
    assert main(["train", algo, env_for(algo), "--run-dir", str(run), *small]) == 0
    lines = (run / "metrics.jsonl").read_text().splitlines()
    written = {name for line in lines for name in json.loads(line)}
    table = OF_ALGORITHMS[algo].partition("## Metrics")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE)) == written


@pytest.mark.parametrize("name", ["cartpole", "lunarlander"])
def test_the_figures_of_the_page_of_dqn_are_those_of_the_files(name):
    found = json.loads((ROOT / f"benchmarks/results/dqn_{name}.json").read_text())
    assert f"`{found['command']}`" in DQN
    for run in found["runs"]:
        spread = f"{run['eval_return_mean']:.1f} +- {run['eval_return_std']:.1f}"
        row = f"| {run['seed']} | {run['env_steps']:,} | {run['seconds']:.1f} | {spread} |"
        assert row in DQN


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "dqn", "CartPole-v1", "--lrr", "1"], "there is no option --lrr"),
        (["train", "dqn", "CartPole-v7"], "No environment 'CartPole-v7'"),
        (["train", "dqn", "BipedalWalker-v3"], "DQN needs Discrete actions"),
        (["train", "dqn", "CartPole-v1", "--device", "mps:7"], "--device mps:7 is not available"),
        (
            ["train", "dqn", "CartPole-v1", "--buffer-size", "10000000000"],
            "does not fit into memory",
        ),
    ],
)
def test_a_message_of_the_troubleshooting_page_is_the_one_that_users_see(
    arguments, message, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    assert message in capsys.readouterr().err and f"`{message}`" in TROUBLE
