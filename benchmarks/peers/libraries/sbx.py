"""PPO of sbx: that of Stable-Baselines3 in JAX, which takes what cores there are by itself."""

# mypy: disable-error-code="import-not-found"

from benchmarks.peers.libraries import sb3
from benchmarks.peers.trial import Trial
from flax import linen
from sbx import PPO


def run(trial: Trial) -> None:
    """Train until the trial is finished."""
    sb3.run(trial, PPO, linen.tanh)
