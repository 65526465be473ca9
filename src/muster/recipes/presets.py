"""Options that are known to work well for an environment. What a user gives comes before them."""

from typing import Any

_OF_ALGORITHMS: dict[str, dict[str, Any]] = {
    "ppo": {"num_envs": 8, "eval_every": 50_000, "checkpoint_every": 100_000}
}
"""What is different from the default for all environments."""

_PRESETS: dict[tuple[str, str], dict[str, Any]] = {
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
    ("ppo", "CartPole-v1"): {
        "env_steps": 300_000,
        "eval_every": 10_240,
        "horizon": 300_000,
        "lr": 1e-3,
        "stop_at": 475.0,
    },
}


def preset(algo: str, env: str) -> dict[str, Any]:
    """Return the options for this algorithm and environment, or none."""
    return {**_OF_ALGORITHMS.get(algo, {}), **_PRESETS.get((algo, env), {})}
