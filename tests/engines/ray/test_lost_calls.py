"""Calls between driver and node actors that Ray loses on purpose: the run goes on."""

import json
import subprocess
import sys

import pytest

pytest.importorskip("ray")
pytestmark = pytest.mark.timeout(600)

PROGRAM = """
from muster import Parallel, Task

def main():
    with Task() as task:
        def work(ctx):
            task.emit("step", ctx.total_step, only_remote=True)
            ctx.n = ctx.total_step
        task.use(work)
        last = task.run(max_step=300, end="own")
    print("done", flush=True)
    return last.n

if __name__ == "__main__":
    print(Parallel.runner(2, engine="ray")(main))
"""


@pytest.mark.parametrize(
    "kind", ["resp", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("req", "in_flight"))]
)
def test_a_run_goes_on_though_calls_of_its_keepers_are_lost(ray_head, tmp_path, kind):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    every = {f"{each}_failure_prob": 10 if each == kind else 0 for each in ("req", "resp")}
    every[f"{kind}_failure_prob"] = 10
    lost = {"CoreWorkerService.grpc_client.PushTask": {"num_failures": -1, **every}}
    done = subprocess.run(
        [sys.executable, program],
        env=ray_head.env(RAY_testing_rpc_failure=json.dumps(lost)),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("[299, 299]") == 1
    assert done.stdout.count("done") == 2, "what nodes print comes once"
