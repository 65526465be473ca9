"""A machine of a cluster without muster, or with another version of it: named, with the fix."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from benchmarks.machines import Machines

from muster.version import __version__

pytest.importorskip("ray")
pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can have several machines"),
]

ROOT = Path(__file__).parents[3]


def python_with(place, muster):
    """Return a Python that has all packages of this one, but for muster the one that is given."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place / "venv"], check=True)
    (packages,) = (place / "venv" / "lib").glob("python*/site-packages")
    # A path in a .pth file: what is there can be imported, and its own .pth files do not count.
    paths = [*([str(muster)] if muster else []), sysconfig.get_path("purelib")]
    (packages / "others.pth").write_text("\n".join(paths))
    return str(place / "venv" / "bin" / "python")


def older_muster(place):
    """Return where there is a muster of another version, which sends its words otherwise, too."""
    shutil.copytree(ROOT / "src" / "muster", place / "muster")
    (place / "muster" / "version.py").write_text('__version__ = "0.0.9"\n')
    node_actor = place / "muster" / "engines" / "ray" / "node_actor.py"
    node_actor.write_text(
        node_actor.read_text().replace("class ActorLocation:", "class ActorLocation(tuple):")
    )
    return place


@pytest.mark.parametrize("kind", ["none", "older"])
def test_a_machine_that_cannot_run_nodes_is_named_with_the_fix(tmp_path, kind):
    python = python_with(tmp_path, None if kind == "none" else older_muster(tmp_path / "older"))
    with Machines([1, 1], pythons={1: python}) as machines:
        where = machines.machines[1].address
        command = [sys.executable, "-m", "muster.cli.main", "train", "ppo", "CartPole-v1"]
        command += ["--engine", "ray", "--address", machines.address, "--workers", "2"]
        command += ["--run-dir", str(tmp_path / "run"), "--quiet"]
        run = machines.start(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        said, _ = run.communicate(timeout=300)
    install = f"pip install muster-rl=={__version__}"
    log = tmp_path / "run" / "logs" / "main.log"
    if kind == "none":
        wanted = [
            f"muster: the machine {where} has no muster",
            "  why: nodes of this program will run there, and need muster",
            f"  try: {install} there, in the Python that runs Ray; see {log}",
        ]
    else:
        wanted = [
            f"muster: the machine {where} has muster 0.0.9; "
            f"the program that started it has muster {__version__}",
            "  why: nodes understand each other only if their versions are equal",
            f"  try: {install} on every machine of the cluster; see {log}",
        ]
    assert said.splitlines() == wanted
    assert run.returncode == 1
    assert "Traceback" in log.read_text()
