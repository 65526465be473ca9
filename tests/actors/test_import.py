"""What an import of the building blocks costs, and what it says where Ray is missing."""

import subprocess
import sys

import pytest

from muster.installs import install


def run(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_the_blocks_imports_no_ray():
    names = "ParameterServer, ReplayBuffer, RolloutWorker, Learner, cluster, finish"
    code = f"import sys; from muster.actors import {names}; print('ray' in sys.modules)"
    assert run(code) == "False\n"


@pytest.mark.parametrize("use", ["ParameterServer({'w': [1.0]})", "cluster().__enter__()"])
def test_without_ray_the_first_use_says_how_to_get_it(use):
    code = (
        "import sys; sys.modules['ray'] = None\n"
        "from muster.actors import ParameterServer, cluster\n"
        f"try:\n    {use}\nexcept ImportError as error:\n    print(error)"
    )
    what, why, fix = run(code).splitlines()
    assert "need Ray" in what and "why: it cannot be imported" in why
    assert fix == f"  try: {install('ray')}"
