"""Policies that `muster fit` cloned from recorded episodes: played, and trained further.

    run of muster fit -> checkpoint -> meta["clone"]: the network, its spaces
                                         ├─> the configuration of an agent that plays it
                                         └─> checks whether an algorithm can start from it

The weights of a clone have the names of an actor-critic's network, so such an agent loads them as
those of any other policy.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym

from muster.algos.actor_critic_config import PolicyAndValueConfig
from muster.algos.ppo_config import PPOConfig
from muster.envs.space_json import space_from_json
from muster.errors import OptionError
from muster.run import Checkpoint, CheckpointError, RunDirectoryError

_KIND = "fit"
_NETWORK = ("hidden", "activation", "shared", "normalize_obs")
_PLAYER = "ppo"
"""The algorithm whose agent plays a clone; every actor-critic would act the same."""


def is_fitted(config: Mapping[str, Any]) -> bool:
    """Whether a run's `config.yaml` is that of `muster fit`."""
    return config.get("kind") == _KIND


def policy_of_clone(checkpoint: Checkpoint, path: Path) -> tuple[str, PPOConfig]:
    """Return the name and the configuration of an agent that plays a clone.

    Raises:
        RunDirectoryError: The run is of a classifier.
        CheckpointError: The checkpoint does not name its network.
    """
    about = _about(checkpoint, path)
    model = checkpoint.meta.get("model")
    try:
        chosen = {name: about[name] for name in _NETWORK}
        chosen["hidden"] = tuple(chosen["hidden"])
        return _PLAYER, PPOConfig(model=str(model), **chosen)
    except (KeyError, TypeError, ValueError) as error:
        raise no_network_named(checkpoint, error) from error


def no_network_named(checkpoint: Checkpoint, error: Exception) -> CheckpointError:
    """Return the error for a fitted checkpoint from which no network can be built."""
    return CheckpointError(
        f"{checkpoint.path} does not name its network",
        str(error).splitlines()[0],
        "the checkpoint that muster fit wrote",
    )


def no_env_of_clone(path: Path) -> RunDirectoryError:
    """Return the error for a clone whose episodes do not say where they were played."""
    return RunDirectoryError(
        f"the episodes that {path} was cloned from name no environment",
        "so nothing says where to play the policy",
        f"muster eval {path} --env CartPole-v1",
    )


def check_start(
    checkpoint: Checkpoint,
    path: Path,
    algo: str,
    config: Any,
    spaces: tuple[gym.Space[Any], gym.Space[Any]],
) -> None:
    """Check that an algorithm can start from a clone.

    Args:
        checkpoint: Of a run of `muster fit`.
        path: The directory of that run.
        algo: Name of the algorithm.
        config: Its configuration.
        spaces: The spaces of one observation and of one action of its environment.

    Raises:
        OptionError: The algorithm has no such policy, or another network.
        RunDirectoryError: The run is of a classifier.
    """
    about = _about(checkpoint, path)
    if not isinstance(config, PolicyAndValueConfig):
        raise OptionError(
            f"{algo} cannot start from {path}",
            "the run has a policy that was cloned from episodes, and this algorithm learns values "
            "of actions, or another kind of policy",
            "muster train ppo ..., or a2c, a3c, impala, appo",
        )
    model = str(checkpoint.meta.get("model"))
    if (config.model or "mlp") != model:
        raise OptionError(
            f"the model of the policy in {path} is {model!r:.80}",
            f"this run's model is {config.model or 'mlp'!r:.80}; a run's own files do not choose "
            "it, because it may be code",
            f"--model {model:.80}",
        )
    _check_network(about, config, path, _NETWORK if model == "mlp" else ("normalize_obs",))
    for name, here in zip(("obs_space", "action_space"), spaces, strict=True):
        there = space_from_json(about.get(name))
        if not _alike(there, here):
            raise OptionError(
                f"the policy in {path} was cloned with {name.replace('_', ' ')} {there}",
                f"this environment has {here}",
                f"the environment that was recorded: {about.get('env') or 'see its data'}",
            )


def _check_network(
    about: Mapping[str, Any], config: Any, path: Path, names: tuple[str, ...]
) -> None:
    for name in names:
        there, here = about.get(name), getattr(config, name)
        there = tuple(there) if isinstance(there, list) else there
        if there != here:
            shown = " ".join(map(str, there)) if isinstance(there, tuple) else there
            flag = f"--{name.replace('_', '-')}"
            fix = f"--no-{flag[2:]}" if there is False else flag if there is True else ""
            raise OptionError(
                f"the policy in {path} has {name}={there!r}",
                f"this run has {name}={here!r}, and would be another policy",
                fix or f"{flag} {shown}",
            )


def _alike(one: gym.Space[Any], other: gym.Space[Any]) -> bool:
    """Whether a network for one space reads the other: bounds may differ."""
    if isinstance(one, gym.spaces.Dict) and isinstance(other, gym.spaces.Dict):
        mine, theirs = one.spaces, other.spaces
        return mine.keys() == theirs.keys() and all(_alike(mine[k], theirs[k]) for k in mine)
    if isinstance(one, gym.spaces.Box) and isinstance(other, gym.spaces.Box):
        return one.shape == other.shape and one.dtype == other.dtype
    return one == other


def _about(checkpoint: Checkpoint, path: Path) -> dict[str, Any]:
    about = checkpoint.meta.get("clone")
    if not isinstance(about, dict):
        raise RunDirectoryError(
            f"{path} holds no policy",
            "its network was fitted to labelled data, and takes no actions",
            f"muster.fitting.load_classifier({str(path)!r})",
        )
    return about
