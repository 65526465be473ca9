"""`load_policy`: a saved policy that acts as it did when it was evaluated."""

import functools
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from muster.envs import make_envs
from muster.envs.flat_actions import own_action
from muster.envs.make import BACKENDS
from muster.envs.setup import EnvSetup
from muster.errors import OptionError
from muster.nets.registry import Factory
from muster.recipes.algorithms import (
    configuration_of,
    load,
    load_algorithm,
    refuse_algorithm_of_a_file,
)
from muster.recipes.clones import is_fitted, no_env_of_clone, policy_of_clone
from muster.recipes.env_options import WRAPPERS, setup_of
from muster.recipes.models import load_model, refuse_code_of_a_file
from muster.recipes.saved import refuse_env_of_a_file, saved_config
from muster.run import Checkpoint, RunDirectory, RunDirectoryError
from muster.run.config_io import from_dict


class LoadedPolicy:
    """A trained policy: from a file, or from a run that has just ended.

    Attributes:
        env: Id of the environment it was trained on.
        backend: The library that ran that environment: "gymnasium" or "envpool".
        checkpoint: Where its weights came from; None if the run never saved them separately.
        setup: The argument for `make_envs` that makes its environments: the id, with the run's own
            arguments and wrappers if it has any.
    """

    def __init__(
        self,
        agent: Any,
        obs_space: gym.Space[Any],
        env: str,
        backend: str,
        checkpoint: Checkpoint | None = None,
        setup: EnvSetup | str | None = None,
    ) -> None:
        self.env = env
        self.setup = env if setup is None else setup
        self.backend = backend
        self.checkpoint = checkpoint
        self._agent = agent
        self._obs_space = obs_space

    @property
    def agent(self) -> Any:
        """The agent that acts: as the algorithm made it, with the weights of the policy."""
        return self._agent

    @property
    def model(self) -> Any:
        """The network, a torch module."""
        return self._agent.model

    @property
    def remembers(self) -> bool:
        """Whether its actions depend on earlier observations."""
        return bool(getattr(self._agent, "remembers", False))

    def reset(self) -> None:
        """Begin a new episode: forget earlier observations. Only a recurrent policy needs this."""
        if self.remembers:
            self._agent.forget()

    def act(self, obs: Any, deterministic: bool = True, first: Any = None) -> Any:
        """Return the action for one observation, or for each observation of a batch.

        For one observation of an environment whose actions are a Tuple, a Dict or MultiBinary, the
        action has that form. For a batch it is an array with a flat row for each: `to_env` converts
        a row.

        Args:
            obs: One observation, or N of them [N, ...].
            deterministic: Return the best action. False samples one from the policy; DQN, which has
                none to sample from, acts at random with the final probability of its exploration.
            first: bool [N], True where an episode begins, for a batch and a recurrent policy.
        """
        act = self._agent.act if deterministic else self._agent.explore
        if first is not None and self.remembers:
            act = functools.partial(act, first=first)
        if isinstance(self._obs_space, gym.spaces.Dict):
            name, part = next(iter(self._obs_space.spaces.items()))
            if np.ndim(obs[name]) > len(part.shape or ()):
                return act(obs)
            return self.to_env(act({k: np.asarray(v)[None] for k, v in obs.items()})[0])
        if np.ndim(obs) > len(self._obs_space.shape or ()):
            return act(np.asarray(obs))
        return self.to_env(act(np.asarray(obs)[None])[0])

    def to_env(self, action: Any) -> Any:
        """Return one action in the form of an environment whose actions have several parts."""
        space = getattr(self._agent, "action_space", None)  # an agent of the user's may have none
        own = getattr(space, "own", None)
        return action if own is None else own_action(own, action)


def load_policy(
    path: str | Path,
    model: str | Factory | None = None,
    env: str | None = None,
    algo: str | None = None,
    wrapper: Any = None,
) -> LoadedPolicy:
    """Load the policy of a run (its best checkpoint, else the last), or of one checkpoint.

    Args:
        path: The run directory, or a checkpoint in it.
        model: The network, if it is code of your own: `module:Class`, or the class itself. The run
            records its name, but a file never causes code to be loaded.
        env: Id of the environment, if it is `module:Id`, for the same reason.
        algo: The algorithm, if it is `module:name`, for the same reason.
        wrapper: The wrappers around the environment, if the run has any, for the same reason.
    """
    run = RunDirectory.open(path)
    config = saved_config(run)
    checkpoint: Checkpoint | None = None
    cfg: Any
    if is_fitted(config):
        checkpoint = run.checkpoints.load(run.checkpoint or run.best.path())
        algo, cfg = policy_of_clone(checkpoint, run.path)
        if env is None and config.get("env") is None:
            raise no_env_of_clone(run.path)
    else:
        if algo is None:
            algo = str(config.get("algo"))
            refuse_algorithm_of_a_file(algo, path)
        load_algorithm(algo)
        kind: Any = configuration_of(algo)
        names = kind.__dataclass_fields__
        cfg = from_dict({name: value for name, value in config.items() if name in names}, kind)
    if isinstance(model, str):
        load_model(model)
        cfg = replace(cfg, model=model)
    elif model is None:
        refuse_code_of_a_file(cfg.model, path)
    if checkpoint is None:
        checkpoint = run.checkpoints.load(run.checkpoint or run.best.path())
    env = _env_of(config, path) if env is None else env
    setup = setup_of(env, _env_options(config, WRAPPERS.names(wrapper), run.path))
    envs = make_envs(setup, backend=_backend_of(config))
    try:
        agent = load(algo, "agent")(
            cfg,
            envs.single_observation_space,
            envs.single_action_space,
            model=None if isinstance(model, str) else model,
        )
    finally:
        envs.close()
    agent.load_parts({"policy": checkpoint.parts["policy"]})
    spaces = envs.single_observation_space
    return LoadedPolicy(agent, spaces, env, envs.backend, checkpoint, setup)


def env_of_run(run: RunDirectory) -> tuple[str, EnvSetup | str, str]:
    """Return the environment of a run: its id, the argument for `make_envs`, and its backend.

    Raises:
        OptionError: The run's files name code that this process has not loaded.
    """
    config = saved_config(run)
    env = _env_of(config, run.path)
    setup = setup_of(env, _env_options(config, None, run.path))
    return env, setup, _backend_of(config)


@dataclass(frozen=True)
class _EnvOptions:
    """The environment options in a run's file."""

    wrapper: tuple[str, ...] = ()
    env_kwargs: tuple[str, ...] = ()


def _env_options(config: dict[str, Any], wrapper: Any, path: object) -> _EnvOptions:
    """Return the wrappers and arguments of a run's environment; loads the wrappers."""
    names = [field.name for field in fields(_EnvOptions)]
    saved = from_dict({name: config[name] for name in names if name in config}, _EnvOptions)
    if wrapper is None:
        WRAPPERS.refuse_of_a_file(saved.wrapper, path)
        return saved
    if tuple(wrapper) != saved.wrapper:
        raise OptionError(
            f"wrapper={wrapper!r:.80} is not possible: the run in {path} has "
            f"wrapper={saved.wrapper!r:.80}",
            "the policy was trained on the environment inside these wrappers",
            f"--wrapper {' '.join(saved.wrapper):.120}" if saved.wrapper else "leave wrapper out",
        )
    WRAPPERS.check(saved.wrapper)
    WRAPPERS.load(saved.wrapper)
    return saved


def _backend_of(config: dict[str, Any]) -> str:
    """Return the backend of the run; earlier versions did not record it."""
    backend = config.get("backend", "auto")
    return backend if backend in BACKENDS else "auto"


def _env_of(config: dict[str, Any], path: object) -> str:
    """Return the environment id in a run's file. Raises OptionError if it names code."""
    env = config.get("env")
    if not isinstance(env, str):
        raise RunDirectoryError(
            f"the config.yaml in {path} names no environment",
            "muster did not write the file",
            "muster eval runs/<env>/<algo>/<date-time>-<seed>",
        )
    refuse_env_of_a_file(env, path)
    return env
