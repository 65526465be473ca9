"""What a worker in step needs, imported and compiled: the fork server does it once for all of them.

Kernels are compiled at their first call, or loaded from where the result was kept. Processes that
begin as copies of one that has called them have them at once. Each type of actions is compiled for
by itself, so there is a module that begins this for each (`warm_box`, `warm_discrete`).
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
    # In the fork server nobody would hear of a failure; the worker that needs it will say so.
    with contextlib.suppress(Exception), one_torch_thread():
        with make_envs(env) as envs:
            spaces = envs.single_observation_space, envs.single_action_space
        worker = SlotWorker(PPO(cfg, *spaces), env, num_envs=1, seed=0)
        worker.collect(0)
        worker.learn(0)
        worker.close()
