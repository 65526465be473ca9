"""Imports and compiles what workers in step need; the fork server does this once for all of them.

A kernel is compiled at its first call, or loaded from the cache. A process forked from one that has
called the kernel has it at once. Each type of action space needs its own compilation, so each has a
module that starts it (`warm_box`, `warm_discrete`).
"""

import contextlib

import muster.recipes.in_step  # noqa: F401  # what workers run
from muster.algos.ppo import PPO, PPOConfig
from muster.envs import make_envs
from muster.nets.threads import one_torch_thread
from muster.workers import SlotWorker


def learn_a_little(env: str) -> None:
    """Train for a few steps, so that every kernel of a small policy is called."""
    cfg = PPOConfig(
        rollout=2,
        epochs=1,
        minibatches=1,
        hidden=(8,),
        slots=1,
        normalize_obs=True,
        normalize_reward=True,
    )
    # A failure in the fork server would go unnoticed; the worker that needs the code reports it.
    with contextlib.suppress(Exception), one_torch_thread():
        with make_envs(env) as envs:
            spaces = envs.single_observation_space, envs.single_action_space
        worker = SlotWorker(PPO(cfg, *spaces), env, num_envs=1, seed=0)
        worker.collect(0)
        worker.learn(0)
        worker.close()
