"""What users rely on without calling it: the names there are, and what an import costs."""

import ast
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from pathlib import Path

from packaging.requirements import Requirement

import muster
from muster.recipes.algorithms import ALGORITHMS

ROOT = Path(__file__).parent.parent


def test_the_public_names_are_these():
    assert sorted(muster.__all__) == [
        "AbsentKeyError",
        "ClusterError",
        "Context",
        "Middleware",
        "MiddlewareError",
        "MusterError",
        "MusterWarning",
        "NodeError",
        "OptionError",
        "Parallel",
        "RunCancelled",
        "StepTimer",
        "StepWrapper",
        "Task",
        "TaskError",
        "Trainer",
        "__version__",
        "compare",
        "export",
        "fit",
        "load_policy",
        "plan",
        "register_algorithm",
        "resume",
        "runs",
        "serve_env",
        "train",
        "train_seeds",
        "tune",
    ]
    assert all(hasattr(muster, name) for name in muster.__all__)


def test_the_names_of_the_contract_are_where_it_says():
    from muster.framework import Context, Parallel, Task
    from muster.framework.wrapper import StepTimer
    from muster.rl_utils import get_epsilon_greedy_fn

    assert (Task, Context, StepTimer) == (muster.Task, muster.Context, muster.StepTimer)
    assert Parallel is muster.Parallel
    assert callable(get_epsilon_greedy_fn)


def test_importing_muster_imports_nothing_heavy():
    heavy = ["torch", "ray", "numpy", "gymnasium", "asyncio", "rich"]
    code = f"import sys, muster; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True
    )
    assert done.stdout == "[]\n"


def test_every_dependency_has_an_exact_version_in_the_constraints():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = dict(line.lower().split("==") for line in lines if not line.startswith("#"))
    wanted = list(project["dependencies"])
    for extra in project["optional-dependencies"].values():
        wanted += extra
    for requirement in wanted:
        name = re.split("[^a-zA-Z0-9-]", requirement)[0].lower()
        assert name in pinned or name == "muster-rl", f"{name} has no version in constraints.txt"


def test_any_recent_torch_is_good_enough_and_ours_is_pinned():
    """A CUDA user keeps the torch that is there; `make` never installs another than this one."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (wanted,) = (Requirement(each) for each in project["dependencies"] if "torch" in each)
    for version in ("2.8.0", "2.9.1+cu128", "2.13.0", "2.14.0"):
        assert wanted.specifier.contains(version), version
    assert not wanted.specifier.contains("2.7.1")
    assert "torch==2.13.0" in (ROOT / "constraints.txt").read_text().splitlines()
    assert "PIP_CONSTRAINT=constraints.txt" in (ROOT / "Makefile").read_text()


NEUTRAL_ROOMS = ("workers", "middleware", "data", "flow", "engines", "run")
"""Where nothing is made for one algorithm. `nets` still knows the clipped loss by its name."""


def test_no_algorithm_is_named_in_rooms_that_serve_all_of_them():
    name = re.compile(rf"(?<![a-z])({'|'.join(ALGORITHMS)})(?![a-z])", re.IGNORECASE)
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for room in NEUTRAL_ROOMS
        for path in (ROOT / "src" / "muster" / room).rglob("*.py")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if name.search(line)
    ]
    assert found == []


def test_one_file_decides_about_devices():
    decides = re.compile(r"\.cuda\(|torch\.(cuda|mps|xpu|accelerator)|\.to\(['\"]|pin_memory")
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in (ROOT / "src" / "muster").rglob("*.py")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if decides.search(line) and path.name != "devices.py"
    ]
    assert found == []


def test_every_file_that_the_architecture_page_names_exists():
    page = (ROOT / "docs" / "architecture.md").read_text()
    named = {name.removeprefix("muster/") for name in re.findall(r"`([a-z_/]+(?:\.py|/))`", page)}
    source = ROOT / "src" / "muster"
    there = [path for path in source.rglob("*") if path.suffix == ".py" or path.is_dir()]
    paths = [f"/{path.relative_to(source)}{'/' * path.is_dir()}" for path in there]
    absent = [name for name in named if not any(path.endswith(f"/{name}") for path in paths)]
    assert [name for name in absent if not (ROOT / name).exists()] == []
    assert len(named) > 60
    listed = set(re.findall(r"^\| `(\w+\.py)` \|", page, re.MULTILINE))
    assert listed == {path.name for path in (source / "framework").glob("[a-z]*.py")}


TWO_FACES = {"Learner", "ParameterServer", "ReplayBuffer"}
"""Public names that `muster.actors` has for plain Ray, and other rooms for tasks."""


def test_every_class_has_a_name_of_its_own():
    found = defaultdict(list)
    for path in sorted((ROOT / "src" / "muster").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(str(path.relative_to(ROOT)))
    twice = {name: where for name, where in found.items() if len(where) > 1}
    assert set(twice) == TWO_FACES, twice
    assert all(any("/actors/" in where for where in twice[name]) for name in TWO_FACES)


def test_every_mutation_of_the_fault_harnesses_still_applies():
    from benchmarks.faults.mutations import MUTATIONS

    for name, mutation in MUTATIONS.items():
        source = (ROOT / "src" / "muster" / mutation.file).read_text()
        assert source.count(mutation.before) == 1, name
