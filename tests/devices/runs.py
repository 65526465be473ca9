"""Short trainings of every algorithm, which the tests of devices repeat on each of them."""

IN_STEP = {"env_steps": 128, "num_envs": 4, "rollout": 16, "slots": 2, "hidden": (16, 16)}
REPLAY = {"env_steps": 64, "learning_starts": 40, "hidden": (16, 16), "batch_size": 16}
UNROLLS = {"env_steps": 160, "num_envs": 2, "hidden": (16, 16)}
SEQUENCES = {
    "env_steps": 330,
    "learning_starts": 300,
    "batch_size": 4,
    "burn_in": 4,
    "sequence": 8,
    "overlap": 4,
}
COMMON = {
    "seed": 11,
    "workers": 0,
    "eval_every": 0,
    "eval_episodes": 1,
    "eval_max_steps": 20,
    "stop_at": None,
    "checkpoint_every": 0,
    "quiet": True,
}
RUNS = {
    "ppo": ("ppo", "CartPole-v1", IN_STEP),
    "ppo of images": (
        "ppo",
        "golden_env:Halves-v0",
        {"env_steps": 32, "num_envs": 4, "rollout": 4, "slots": 2},
    ),
    "ppo in bfloat16": (
        "ppo",
        "golden_env:Halves-v0",
        {"env_steps": 32, "num_envs": 4, "rollout": 4, "slots": 2, "bf16": True},
    ),
    "ppo with a memory": (
        "ppo",
        "CartPole-v1",
        IN_STEP | {"model": "lstm", "hidden": (16,), "sequence": 4},
    ),
    "ppo that normalises": (
        "ppo",
        "Pendulum-v1",
        IN_STEP | {"normalize_obs": True, "normalize_reward": True},
    ),
    "ppo with masks": ("ppo", "mask_env:Corridor-v0", IN_STEP),
    "a2c": ("a2c", "CartPole-v1", IN_STEP),
    "pqn": ("pqn", "CartPole-v1", IN_STEP),
    "dqn": ("dqn", "CartPole-v1", REPLAY),
    "dqn with all of Rainbow": (
        "dqn",
        "CartPole-v1",
        REPLAY | {"noisy": True, "quantiles": 5, "prioritized": True, "n_step": 3},
    ),
    "dqn with dueling": (
        "dqn",
        "CartPole-v1",
        REPLAY | {"dueling": True, "double": True},
    ),
    "dqn of categories": ("dqn", "FrozenLake-v1", REPLAY),
    "dqn with masks": ("dqn", "mask_env:Corridor-v0", REPLAY),
    "sac": ("sac", "Pendulum-v1", REPLAY),
    "sac with batch norm": ("sac", "Pendulum-v1", REPLAY | {"batch_norm": True}),
    "sac with dropout": ("sac", "Pendulum-v1", REPLAY | {"dropout": 0.1, "layer_norm": True}),
    "impala": ("impala", "CartPole-v1", UNROLLS),
    "appo": ("appo", "CartPole-v1", UNROLLS),
    "apex": ("apex", "CartPole-v1", REPLAY),
    "r2d2": ("r2d2", "CartPole-v1", SEQUENCES | {"hidden": (16,)}),
    "a3c": ("a3c", "CartPole-v1", {"env_steps": 60, "num_envs": 2, "hidden": (16, 16)}),
}
