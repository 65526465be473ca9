"""One `gymnasium.Env` of a vector: making and closing it, and the error if a call fails."""

import contextlib
from collections.abc import Callable
from typing import Any

import gymnasium as gym

from muster.envs.errors import EnvError, brief, one_line
from muster.envs.flat_actions import FlatActions, flat_space
from muster.envs.quick_spaces import quicken
from muster.envs.text_parts import without_text
from muster.errors import MusterError, raised_at
from muster.framework.signals import is_signal_exit

OneEnv = gym.Env[Any, Any]


def make_env(env_id: str, make_one: Callable[[], OneEnv], index: int) -> OneEnv:
    """Make env `index`; raise EnvError if that fails, or makes something else."""
    try:
        env = make_one()
    except MusterError:
        raise
    except (Exception, SystemExit) as error:
        if is_signal_exit(error):
            raise
        raise call_failed(env_id, "init", error, index) from error
    if not isinstance(env, gym.Env):
        raise EnvError(
            f"{env_id!r} made {brief(env)}, which is not an environment",
            "a factory returns a new gymnasium.Env each time it is called",
            'make_envs(lambda: gymnasium.make("CartPole-v1"))',
            env=index,
            field="init",
        )
    quicken(env)
    env = without_text(env, env_id)
    flat = flat_space(env.action_space)
    return env if flat is None else FlatActions(env, flat)


def require_same_spaces(env_id: str, first: OneEnv, env: OneEnv, index: int) -> None:
    """Raise EnvError if the spaces of env `index` differ from those of the first env."""
    for name in ("observation_space", "action_space"):
        here, there = getattr(env, name), getattr(first, name)
        if here != there:
            raise EnvError(
                f"{name} of env {index} of {env_id!r} is {here}, but env 0 has {there}",
                "all envs of a vector must have the same spaces",
                "call make_envs once for each kind of env",
                env=index,
                field=name,
            )


def call_failed(
    env_id: str,
    call: str,
    error: BaseException,
    env: int,
    episode: int | None = None,
    step: int | None = None,
    seed: int | None = None,
) -> EnvError:
    """Return the error for an exception raised by an env, with a hint where the cause is known."""
    place = f"env {env} of {env_id!r}"
    if episode is not None:
        place += f" (episode {episode}, step {step}, seed {seed})"
    why = f"the environment itself raised this exception, in {raised_at(error)}"
    fix = "muster doctor ENV, which checks an environment"
    if isinstance(error, MusterError):
        _, why, fix = error.args
    elif "unpack" in str(error) and isinstance(error, ValueError | TypeError):
        returned = "obs, info" if call == "reset" else "obs, reward, terminated, truncated, info"
        why = f"probably {call} does not return the right number of values"
        fix = f"return {returned}"
    elif call == "reset" and "2**32" in str(error):
        fix = "use seed % 2**32 in reset: seeds of episodes have 63 bits"
    return EnvError(
        f"{call} of {place} failed: {one_line(error)}",
        why,
        fix,
        env=env,
        episode=episode,
        step=step,
        seed=seed,
        field=call,
    )


def close_quietly(env: OneEnv) -> None:
    """Close an env after another failure, which is the one to report."""
    with contextlib.suppress(Exception):
        env.close()
