"""PPO of RLlib, with its runners of environments in the process of the learner, or in actors.

On two cores the first is the faster one. Its cluster is its own, whatever else runs here.
"""

# mypy: disable-error-code="import-not-found, misc, no-untyped-call"

import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ray
import torch
from benchmarks.peers.trial import ENV, EPISODES, Trial
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig


def run(trial: Trial, runners: int = 0) -> None:
    """Train until the trial is finished.

    Args:
        trial: What to do.
        runners: Actors among which the environments are divided; 0 for none.
    """
    with cluster_of_its_own():
        _train(trial, runners)


@contextmanager
def cluster_of_its_own() -> Iterator[None]:
    """Start Ray for one trial, and end it."""
    with tempfile.TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as directory:
        ray.init(
            "local",
            include_dashboard=False,
            logging_level=logging.ERROR,
            log_to_driver=False,
            _temp_dir=directory,
        )
        try:
            yield
        finally:
            ray.shutdown()


def _train(trial: Trial, runners: int) -> None:
    recipe = trial.recipe
    config: Any = PPOConfig()
    config = (
        config.environment(ENV)
        .env_runners(
            num_env_runners=runners,
            num_envs_per_env_runner=recipe.num_envs // max(1, runners),
            rollout_fragment_length=recipe.rollout,
        )
        .learners(num_learners=0)
        .training(
            train_batch_size_per_learner=recipe.batch,
            minibatch_size=recipe.minibatch,
            num_epochs=recipe.epochs,
            lr=recipe.lr,
            gamma=recipe.gamma,
            lambda_=recipe.gae_lambda,
            clip_param=recipe.clip,
            vf_clip_param=float("inf"),
            vf_loss_coeff=0.5,
            entropy_coeff=recipe.entropy_coef,
            use_kl_loss=False,
            grad_clip=0.5,
        )
        .rl_module(
            model_config=DefaultModelConfig(
                fcnet_hiddens=list(recipe.hidden), fcnet_activation="tanh", vf_share_layers=False
            )
        )
        .reporting(metrics_num_episodes_for_smoothing=EPISODES)
        .debugging(seed=trial.seed, log_level="ERROR")
    )
    algorithm = config.build_algo()
    torch.set_num_threads(trial.threads)
    module = algorithm.get_module()

    def act(observations: Any) -> Any:
        with torch.no_grad():
            told = module.forward_inference({"obs": torch.as_tensor(observations)})
        return told["action_dist_inputs"].argmax(1).numpy()

    while True:
        told = algorithm.train()
        mean = told["env_runners"].get("episode_return_mean", 0.0)  # of the last 20 episodes
        trial.updated(int(told["num_env_steps_sampled_lifetime"]), act, [mean] * EPISODES)
