"""PPO of Stable-Baselines3, on its vector environment in one process; `sbx.py` has the same."""

# mypy: disable-error-code="import-not-found, misc"

from typing import Any

import torch
from benchmarks.peers.trial import Trial
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_atari_env, make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecFrameStack


class Tell(BaseCallback):
    """Tells the trial of every update: a rollout starts where the one before has been learnt."""

    def __init__(self, trial: Trial) -> None:
        super().__init__()
        self._trial = trial

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:
        if self.num_timesteps:
            returns = [episode["r"] for episode in self.model.ep_info_buffer]
            self._trial.updated(self.num_timesteps, self._act, returns)

    def _act(self, observations: Any) -> Any:
        return self.model.predict(observations, deterministic=True)[0]


def run(trial: Trial, algorithm: Any = PPO, activation: Any = torch.nn.Tanh) -> None:
    """Train until the trial is finished."""
    envs = make_vec_env(trial.recipe.env, n_envs=trial.recipe.num_envs, seed=trial.seed)
    shape = {"net_arch": list(trial.recipe.hidden), "activation_fn": activation}
    _train(trial, algorithm, "MlpPolicy", envs, policy_kwargs=shape)


def pong(trial: Trial, subprocesses: bool) -> None:
    """Train on Pong until the trial is finished, with its environments here or each in a process.

    Its wrapper repeats actions, so the environment must not: 4 frames are one step.
    """
    envs = make_atari_env(
        "ale_py:PongNoFrameskip-v4",
        n_envs=trial.recipe.num_envs,
        seed=trial.seed,
        vec_env_cls=SubprocVecEnv if subprocesses else DummyVecEnv,
        vec_env_kwargs={"start_method": "fork"} if subprocesses else None,
    )
    try:
        _train(trial, PPO, "CnnPolicy", VecFrameStack(envs, n_stack=4))
    finally:
        envs.close()


def _train(trial: Trial, algorithm: Any, policy: str, envs: Any, **options: Any) -> None:
    torch.set_num_threads(trial.threads)
    recipe = trial.recipe
    model = algorithm(
        policy,
        envs,
        n_steps=recipe.rollout,
        batch_size=recipe.minibatch,
        n_epochs=recipe.epochs,
        learning_rate=recipe.lr,
        gamma=recipe.gamma,
        gae_lambda=recipe.gae_lambda,
        clip_range=recipe.clip,
        ent_coef=recipe.entropy_coef,
        device="cpu",
        seed=trial.seed,
        **options,
    )
    model.learn(10**9, callback=Tell(trial))
