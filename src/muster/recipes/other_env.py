"""Starting from the policy of another environment: allowed if both have the same spaces."""

from typing import Any

import gymnasium as gym

from muster.envs import make_envs
from muster.errors import MusterError, OptionError
from muster.recipes.policy import env_of_run
from muster.run import RunDirectory


def check_spaces(run: RunDirectory, env: str, agent: Any) -> None:
    """Raise OptionError if a run's policy acts in other spaces than those of an environment.

    Bounds of observations may differ: no network depends on them. If the run's environment cannot
    be made in this process, only the shapes of the weights are compared, when they are loaded.

    Args:
        run: The run whose policy a new run starts from.
        env: Id of the new run's environment.
        agent: The new run's agent.
    """
    try:
        saved, setup, backend = env_of_run(run)
        if saved == env:
            return
        with make_envs(setup, backend=backend) as envs:
            obs, action = envs.single_observation_space, envs.single_action_space
    except MusterError:
        return
    if not _alike(obs, agent.obs_space) or action != agent.action_space:
        raise OptionError(
            f"the policy in {run.path} does not fit {env!r:.80}",
            f"it was trained on {saved!r:.80}, from {_shown(obs)} to {_shown(action)}; "
            f"{env!r:.80} goes from {_shown(agent.obs_space)} to {_shown(agent.action_space)}",
            "an environment with the same spaces, or a wrapper that makes them so",
        )


def _alike(one: gym.Space[Any], other: gym.Space[Any]) -> bool:
    """Whether two spaces of observations have the same structure, shapes and types."""
    if isinstance(one, gym.spaces.Dict) and isinstance(other, gym.spaces.Dict):
        return list(one) == list(other) and all(_alike(one[key], other[key]) for key in one)
    if isinstance(one, gym.spaces.Box) and isinstance(other, gym.spaces.Box):
        return (one.shape, one.dtype) == (other.shape, other.dtype)
    return bool(one == other)


def _shown(space: gym.Space[Any]) -> str:
    """Return a space on one line."""
    return f"{' '.join(str(space).split()):.160}"
