"""The environment of evaluations: the one that is trained on, or another one with the same spaces.

    --eval-env ID              another environment; the run's wrappers are put around it, too
    --eval-env-kwargs key=v    its arguments; without --eval-env, changes of the run's --env-kwargs

Both identify a run, because the scores of two environments cannot be compared: `best` would mean
nothing.
"""

from typing import Any

import gymnasium as gym

from muster.envs import UnknownEnvError, make_envs
from muster.envs.setup import EnvSetup
from muster.errors import OptionError
from muster.recipes.env_options import env_setup, parse_env_kwargs, setup_of
from muster.recipes.options import TrainOptions


def eval_setup(env: str, options: TrainOptions) -> EnvSetup | str:
    """Return the argument for `make_envs` that makes the environments of evaluations.

    Args:
        env: Id of the environment that is trained on.
        options: Options of the run.
    """
    if not is_apart(options):
        return setup_of(env, options)
    own = parse_env_kwargs(options.eval_env_kwargs, "eval_env_kwargs")
    if options.eval_env is None:
        own = {**parse_env_kwargs(options.env_kwargs), **own}
    return env_setup(options.eval_env or env, own, options.wrapper)


def eval_backend(options: TrainOptions) -> str:
    """Return the backend of evaluations: that of training may not have the other environment."""
    return options.backend if options.eval_env is None else "auto"


def is_apart(options: TrainOptions) -> bool:
    """Whether evaluations have an environment of their own."""
    return options.eval_env is not None or bool(options.eval_env_kwargs)


def check_eval_env(
    env: str, options: TrainOptions, spaces: tuple[gym.Space[Any], gym.Space[Any]]
) -> None:
    """Make an environment of evaluations, and compare its spaces with those of training.

    Raises:
        OptionError: There is no such environment, or it has other spaces.
    """
    if not is_apart(options):
        return
    name = options.eval_env or f"{env} {' '.join(options.eval_env_kwargs)}"
    try:
        with make_envs(eval_setup(env, options), backend=eval_backend(options)) as envs:
            theirs = envs.single_observation_space, envs.single_action_space
    except UnknownEnvError as error:
        what, why, _ = error.args
        near = error.nearest
        raise OptionError(f"eval_env: {what}", why, f"eval_env={near or env}") from None
    for kind, here, there in zip(("observations", "actions"), spaces, theirs, strict=True):
        if here != there:
            raise OptionError(
                f"evaluations on {name!r:.120} are not possible: its {kind} are {there}",
                f"those of {env!r:.80} are {here}; one policy acts in both",
                "an eval_env with equal spaces, or a wrapper that makes them equal in both",
            )
