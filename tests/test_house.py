"""What users rely on without calling it: the names there are, and what an import costs."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import muster

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
        "__version__",
        "load_policy",
        "resume",
        "train",
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
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
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
    assert pinned["torch"] == "2.13.0"
