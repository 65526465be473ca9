"""IMPALA of RLlib: runners of environments in actors, batches of 500 steps, as it comes."""

# mypy: disable-error-code="import-not-found, misc, no-untyped-call"

from typing import Any

import torch
from benchmarks.peers.libraries.rllib import cluster_of_its_own
from benchmarks.peers.trial import ENV, Trial
from ray.rllib.algorithms.impala import IMPALAConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig

FRAGMENT, BATCH = 50, 500
"""Its own defaults: steps of a runner's environments that travel together, steps of an update."""


def run(trial: Trial, runners: int = 1) -> None:
    """Train until the trial is finished.

    Args:
        trial: What to do.
        runners: Actors among which the environments are divided.
    """
    with cluster_of_its_own():
        _train(trial, runners)


def _train(trial: Trial, runners: int) -> None:
    recipe = trial.recipe
    config: Any = IMPALAConfig()
    config = (
        config.environment(ENV)
        .env_runners(
            num_env_runners=runners,
            num_envs_per_env_runner=recipe.num_envs // runners,
            rollout_fragment_length=FRAGMENT,
        )
        .learners(num_learners=0)
        .training(
            train_batch_size_per_learner=BATCH,
            lr=recipe.lr,
            gamma=recipe.gamma,
            entropy_coeff=recipe.entropy_coef,
            vf_loss_coeff=0.5,
        )
        .rl_module(
            model_config=DefaultModelConfig(
                fcnet_hiddens=list(recipe.hidden), fcnet_activation="tanh", vf_share_layers=False
            )
        )
        .reporting(min_time_s_per_iteration=1)  # else each call hides ten seconds
        .debugging(seed=trial.seed, log_level="ERROR")
    )
    algorithm = config.build_algo()
    torch.set_num_threads(trial.threads)
    while True:
        told = algorithm.train().get("learners", {}).get("__all_modules__", {})
        if "num_env_steps_trained_lifetime" in told:  # it has not learnt yet in its first seconds
            trial.updated(int(told["num_env_steps_trained_lifetime"]))
