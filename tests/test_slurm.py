"""The Slurm script, with a stand-in for `srun` that sets the variables that Slurm documents."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import muster

pytestmark = pytest.mark.timeout(300)
ROOT = Path(__file__).parent.parent
SCRIPT = ROOT / "examples" / "slurm" / "train.sbatch"
SRUN = """#!{python}
import os, subprocess, sys
count = int(os.environ["SLURM_NTASKS"])
tasks = [
    subprocess.Popen(
        sys.argv[1:],
        env={{
            **os.environ,
            "SLURM_PROCID": str(number),
            "SLURM_LOCALID": str(number),
            "SLURM_NODEID": "0",
            "SLURM_STEP_NUM_TASKS": str(count),
        }},
    )
    for number in range(count)
]
sys.exit(max(task.wait() for task in tasks))  # srun returns the highest exit code
"""
MUSTER = """#!{python}
import json, os, sys
names = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "MUSTER_TOKEN")
seen = {{"argv": sys.argv[1:], **{{name: os.environ[name] for name in names}}}}
open(f"{place}/rank" + os.environ["RANK"], "w").write(json.dumps(seen))
"""


@pytest.fixture
def slurm(tmp_path):
    """A machine that has Slurm's commands, as far as the script needs them."""
    commands = tmp_path / "bin"
    commands.mkdir()

    def command(name, text):
        file = commands / name
        file.write_text(text.format(python=sys.executable, place=tmp_path))
        file.chmod(0o755)

    command("srun", SRUN)
    command("scontrol", "#!/bin/sh\n# show hostnames LIST\necho 127.0.0.1; echo 127.0.0.2\n")

    def sbatch(*argv, tasks=2, **variables):
        from rank_processes import free_address

        environment = {
            **os.environ,
            "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}",
            "SLURM_JOB_ID": "4711",
            "SLURM_JOB_NODELIST": "node[01-02]",
            "SLURM_NTASKS": str(tasks),
            "SLURM_SUBMIT_DIR": str(tmp_path),
            "MASTER_PORT": free_address().rpartition(":")[2],
            **variables,
        }
        return subprocess.run(
            ["bash", SCRIPT, *argv],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=200,
        )

    sbatch.command = command
    return sbatch


def test_every_task_is_a_rank_with_the_same_command(slurm, tmp_path):
    slurm.command("muster", MUSTER)
    assert slurm("ppo", "CartPole-v1", "--env-steps", "1e6", tasks=3).returncode == 0
    seen = [json.loads((tmp_path / f"rank{rank}").read_text()) for rank in range(3)]
    assert [each.pop("RANK") for each in seen] == ["0", "1", "2"]
    assert seen[0] == seen[1] == seen[2]
    assert seen[0]["WORLD_SIZE"] == "3" and seen[0]["MASTER_ADDR"] == "127.0.0.1"
    assert len(seen[0]["MUSTER_TOKEN"]) == 32
    run = str(tmp_path / "runs" / "slurm-4711")
    wanted = ["train", "ppo", "CartPole-v1", "--env-steps", "1e6", "--run-dir", run]
    assert seen[0]["argv"] == [*wanted, "--join", "env", "--join-timeout", "300"]


def test_a_run_that_has_a_checkpoint_is_resumed(slurm, tmp_path):
    slurm.command("muster", MUSTER)
    run = tmp_path / "run"
    (run / "checkpoints").mkdir(parents=True)
    (run / "checkpoints" / "last.json").write_text("{}")
    assert slurm(RUN=str(run)).returncode == 0
    seen = json.loads((tmp_path / "rank1").read_text())
    assert seen["argv"][:2] == ["resume", str(run)]


@pytest.mark.slow
def test_a_job_trains_and_comes_to_the_policy_of_one_process(slurm, tmp_path):
    small = {"env_steps": 2048, "eval_every": 0, "eval_episodes": 1, "quiet": True, "num_envs": 8}
    options = [
        word
        for name, value in small.items()
        for word in ((f"--{name.replace('_', '-')}",) + (() if value is True else (str(value),)))
    ]
    slurm.command("muster", '#!/bin/sh\nexec {python} -m muster.cli.main "$@"\n')
    done = slurm("ppo", "CartPole-v1", *options)
    assert done.returncode == 0, done.stderr
    run = tmp_path / "runs" / "slurm-4711"
    found = json.loads((run / "result.json").read_text())
    one = muster.train("ppo", "CartPole-v1", run_dir=str(tmp_path / "one"), workers=0, **small)
    assert found["policy_sha256"] == one.policy_sha256
    again = slurm("--env-steps", "4096", RUN=str(run))
    assert again.returncode == 0, again.stderr
    assert json.loads((run / "result.json").read_text())["env_steps"] == 4096
