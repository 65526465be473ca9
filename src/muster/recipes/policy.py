"""`load_policy`: a saved policy that acts as it did when it was evaluated."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from muster.algos.dqn import DQN, DQNConfig
from muster.envs import make_envs
from muster.run import Checkpoint, RunDirectory
from muster.run.config_io import from_dict
from muster.run.yaml_text import load


class LoadedPolicy:
    """A policy from a file.

    Attributes:
        env: Id of the environment it was trained on.
        checkpoint: Where its weights came from.
    """

    def __init__(
        self, agent: DQN, obs_space: gym.Space[Any], env: str, checkpoint: Checkpoint
    ) -> None:
        self.env = env
        self.checkpoint = checkpoint
        self._agent = agent
        self._obs_space = obs_space

    def act(self, obs: Any, deterministic: bool = True) -> Any:
        """Return the action for one observation, or for each of a batch.

        Args:
            obs: One observation, or N of them [N, ...].
            deterministic: The greedy action. DQN has no other policy to sample from: False acts
                at random as often as it did at the end of exploration.
        """
        epsilon = 0.0 if deterministic else self._agent.cfg.eps_end
        if isinstance(self._obs_space, gym.spaces.Dict):
            name, part = next(iter(self._obs_space.spaces.items()))
            if np.ndim(obs[name]) > len(part.shape or ()):
                return self._agent.act(obs, epsilon)
            return self._agent.act({k: np.asarray(v)[None] for k, v in obs.items()}, epsilon)[0]
        if np.ndim(obs) > len(self._obs_space.shape or ()):
            return self._agent.act(np.asarray(obs), epsilon)
        return self._agent.act(np.asarray(obs)[None], epsilon)[0]


def load_policy(path: str | Path) -> LoadedPolicy:
    """Load the policy of a run (its best checkpoint, else the last), or of one checkpoint."""
    run = RunDirectory.open(path)
    checkpoint = run.checkpoints.load(run.checkpoint or run.checkpoints.best())
    config = load(run.read_config())
    names = DQNConfig.__dataclass_fields__
    cfg = from_dict({name: value for name, value in config.items() if name in names}, DQNConfig)
    envs = make_envs(config["env"])
    try:
        agent = DQN(cfg, envs.single_observation_space, envs.single_action_space)
    finally:
        envs.close()
    agent.load_parts({"policy": checkpoint.parts["policy"]})
    return LoadedPolicy(agent, envs.single_observation_space, config["env"], checkpoint)
