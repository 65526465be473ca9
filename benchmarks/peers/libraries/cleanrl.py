"""CleanRL's `ppo_atari_envpool.py`: a script and no package, so it runs as it is.

Every update prints one line that starts with `SPS:`; the clock is ours.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.peers.trial import Trial


def pong(trial: Trial, script: Path) -> None:
    """Train on Pong until the trial is finished."""
    recipe = trial.recipe
    options = {
        "env-id": "Pong-v5",
        "seed": trial.seed,
        "num-envs": recipe.num_envs,
        "num-steps": recipe.rollout,
        "update-epochs": recipe.epochs,
        "num-minibatches": recipe.minibatches,
        "learning-rate": recipe.lr,
        "gamma": recipe.gamma,
        "gae-lambda": recipe.gae_lambda,
        "clip-coef": recipe.clip,
        "ent-coef": recipe.entropy_coef,
    }
    command = [sys.executable, "-u", str(script.absolute())]
    command += [f"--{name}={value}" for name, value in options.items()]
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as process,
    ):
        assert process.stdout is not None
        updates = 0
        try:
            for line in process.stdout:
                if line.startswith("SPS:"):
                    updates += 1
                    trial.updated(updates * recipe.batch)
        finally:
            process.kill()
