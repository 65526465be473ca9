"""Options that work well for an environment. Options that a user gives take precedence.

A preset belongs to an algorithm and to an id, or to a pattern of ids for a family of environments.
"""

from fnmatch import fnmatchcase
from typing import Any

from muster.recipes.algorithms import configuration_of

_PRESETS: dict[tuple[str, str], dict[str, Any]] = {
    ("a2c", "CartPole-v1"): {
        "eval_every": 20_480,
        "horizon": 300_000,
        "num_envs": 8,
        "stop_at": 475.0,
    },
    ("a3c", "CartPole-v1"): {
        "eval_every": 10_240,
        "horizon": 300_000,
        "lr": 1e-3,
        "num_envs": 8,
        "stop_at": 475.0,
    },
    ("appo", "CartPole-v1"): {
        "eval_every": 20_480,
        "horizon": 500_000,
        "lr": 1e-3,
        "lr_end": 0.0,
        "num_envs": 16,
        "stop_at": 475.0,
        "unroll": 16,
    },
    ("apex", "CartPole-v1"): {
        "batch_size": 64,
        "buffer_size": 50_000,
        "env_steps": 100_000,
        "eval_every": 2_000,
        "hidden": (64, 64),
        "learning_starts": 1_000,
        "lr": 1e-3,
        "num_envs": 8,
        "stop_at": 475.0,
        "target_update": 200,
        "train_every": 64,
        "updates_per_train": 64,
    },
    ("dqn", "CartPole-v1"): {
        "batch_size": 64,
        "env_steps": 100_000,
        "eps_decay": 4_000.0,
        "eval_every": 2_000,
        "hidden": (64, 64),
        "lr": 1e-3,
        "num_envs": 8,
        "stop_at": 475.0,
        "target_update": 200,
        "train_every": 64,
        "updates_per_train": 64,
    },
    ("dqn", "LunarLander-v3"): {
        "batch_size": 128,
        "env_steps": 400_000,
        "eps_decay": 30_000.0,
        "eps_end": 0.05,
        "eval_every": 10_000,
        "hidden": (128, 128),
        "horizon": 300_000,
        "learning_starts": 2_000,
        "lr": 6.3e-4,
        "num_envs": 8,
        "stop_at": 200.0,
        "target_update": 500,
        "train_every": 32,
        "updates_per_train": 32,
    },
    ("impala", "CartPole-v1"): {
        "eval_every": 20_480,
        "horizon": 500_000,
        "lr": 1e-3,
        "lr_end": 0.0,
        "num_envs": 16,
        "stop_at": 475.0,
        "unroll": 16,
    },
    ("pqn", "CartPole-v1"): {
        "eps_decay": 20_000.0,
        "eval_every": 10_240,
        "horizon": 300_000,
        "lr": 1e-3,
        "minibatches": 16,
        "num_envs": 32,
        "q_lambda": 0.95,
        "stop_at": 475.0,
    },
    ("pqn", "LunarLander-v3"): {
        "eps_decay": 100_000.0,
        "eval_every": 51_200,
        "horizon": 800_000,
        "lr": 1e-3,
        "lr_end": 0.0,
        "minibatches": 16,
        "num_envs": 32,
        "q_lambda": 0.9,
        "stop_at": 200.0,
    },
    ("r2d2", "CartPole-v1"): {
        "batch_size": 32,
        "buffer_size": 50_000,
        "burn_in": 10,
        "env_steps": 100_000,
        "eval_every": 4_000,
        "gamma": 0.99,
        "hidden": (64, 64),
        "last_action": False,  # the observation already contains the full state
        "learning_starts": 1_000,
        "lr": 5e-4,
        "n_step": 3,
        "num_envs": 8,
        "overlap": 10,
        "sequence": 20,
        "stop_at": 475.0,
        "target_update": 200,
        "train_every": 64,
        "updates_per_train": 16,
    },
    ("ppo", "LunarLander-v3"): {
        "eval_every": 65_536,
        "gae_lambda": 0.98,
        "gamma": 0.999,
        "horizon": 1_500_000,
        "lr": 1e-3,
        "lr_end": 0.0,
        "minibatches": 16,
        "num_envs": 16,
        "rollout": 256,
        "stop_at": 200.0,
    },
    ("ppo", "Pendulum-v1"): {
        "entropy_coef": 0.0,
        "epochs": 10,
        "eval_every": 40_960,
        "gae_lambda": 0.95,
        "gamma": 0.9,
        "horizon": 400_000,
        "lr": 1e-3,
        "lr_end": 0.0,
        "minibatches": 16,
        "normalize_obs": True,
        "normalize_reward": True,
        "num_envs": 8,
        "rollout": 256,
        "stop_at": -250.0,
    },
    ("sac", "Pendulum-v1"): {
        "env_steps": 20_000,
        "eval_every": 2_000,
        "lr_actor": 1e-3,
        "lr_temperature": 1e-3,
        "lr_critic": 1e-3,
        "stop_at": -200.0,
    },
    ("ppo", "CartPole-v1"): {
        "eval_every": 10_240,
        "horizon": 300_000,
        "lr": 1e-3,
        "stop_at": 475.0,
    },
}


_MUJOCO = {
    "activation": "tanh",
    "entropy_coef": 0.0,
    "epochs": 10,
    "eval_episodes": 20,
    "eval_every": 100_000,
    "horizon": 1_000_000,
    "lr": 3e-4,
    "lr_end": 0.0,
    "minibatches": 32,
    "normalize_obs": True,
    "normalize_reward": True,
    "num_envs": 8,
    "rollout": 256,
    "value_clip": 0.2,
}
_ATARI = {
    "clip": 0.1,
    "eval_episodes": 8,
    "eval_every": 250_000,
    "horizon": 10_000_000,
    "lr_end": 0.0,
    "model": "nature_cnn",
    "num_envs": 8,
}
_PRESETS.update({("ppo", f"{name}-v[45]"): _MUJOCO for name in ("HalfCheetah", "Hopper")})
# From CleanRL: the temperature falls from 1 three times as fast as with SAC's own 3e-4, and until
# it has fallen, HalfCheetah learns nothing.
_SAC_MUJOCO = {"eval_episodes": 20, "eval_every": 20_000, "lr_critic": 1e-3, "lr_temperature": 1e-3}
_PRESETS.update(
    {
        ("sac", f"{name}-v[45]"): _SAC_MUJOCO
        for name in ("Ant", "HalfCheetah", "Hopper", "Humanoid", "Walker2d")
    }
)
_PRESETS[("ppo", "Breakout-v5")] = _ATARI
# Reaches 20 of 21 after 1.07M steps (benchmarks/results/ppo_pong.json), so 10M are not needed.
_PRESETS[("ppo", "Pong-v5")] = {**_ATARI, "horizon": 2_000_000, "lr": 5e-4, "stop_at": 18.0}

# Cobbe et al. 2020, except for the number of environments and of steps.
_PRESETS[("ppo", "procgen*")] = {
    "epochs": 3,
    "eval_episodes": 20,
    "eval_every": 0,
    "gae_lambda": 0.95,
    "gamma": 0.999,
    "horizon": 25_000_000,
    "lr": 5e-4,
    "minibatches": 8,
    "model": "impala_cnn",
    "normalize_reward": True,
    "num_envs": 64,
    "rollout": 256,
}


def preset(algo: str, env: str) -> dict[str, Any]:
    """Return the options for this algorithm and environment; without a preset, the algorithm's."""
    config: Any = configuration_of(algo)
    found = (
        options
        for (name, ids), options in _PRESETS.items()
        if name == algo and fnmatchcase(env, ids)
    )
    return {**config.OF_RUNS, **next(found, {})}
