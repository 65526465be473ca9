"""Recorded episodes for tests: of a scripted expert, and of made-up spaces."""

import json

import h5py
import numpy as np

from muster.data.episodes import EpisodeWriter, RecordedEpisode
from muster.envs.space_json import space_to_json
from muster.workers import evaluate_policy
from muster.workers.recorder import EpisodeRecorder


class Balancer:
    """A scripted policy that balances CartPole's pole for 500 steps, and stays in the middle."""

    def act(self, obs):
        lean = obs @ np.array([0.1, 0.25, 1.0, 0.6], np.float32)
        return (lean > 0).astype(np.int64)


def about(env, obs_space, action_space, **more):
    spaces = {"obs_space": space_to_json(obs_space), "action_space": space_to_json(action_space)}
    return {"env": env, **spaces, **more}


def record_expert(path, env, spaces, episodes=12):
    """Record the expert's episodes, and return their evaluation."""
    with EpisodeWriter(path, about(env, *spaces)) as writer:
        return evaluate_policy(Balancer(), env, episodes, recorder=EpisodeRecorder(writer))


def write_episodes(path, obs_space, action_space, episodes, env=None):
    """Write episodes that are lists of (observations with the last one, actions)."""
    with EpisodeWriter(path, about(env, obs_space, action_space)) as writer:
        for obs, action in episodes:
            reward = np.zeros(len(action), np.float32)
            writer.add(RecordedEpisode(obs, np.asarray(action), reward, True))
    return path


def drawn(space, count, rng):
    """Return that many random members of a space, stacked."""
    space.seed(int(rng.integers(1 << 30)))
    rows = [space.sample() for _ in range(count)]
    if isinstance(rows[0], dict):
        return {key: np.stack([row[key] for row in rows]) for key in rows[0]}
    return np.stack(rows)


def random_episodes(obs_space, action_space, count=6, steps=9, seed=0):
    """Return episodes of random observations and actions; a masked choice is never taken."""
    rng = np.random.default_rng(seed)
    made = []
    for number in range(count):
        length = steps + number % 3
        obs, action = drawn(obs_space, length + 1, rng), drawn(action_space, length, rng)
        if isinstance(obs, dict) and "action_mask" in obs:
            choices = np.atleast_1d(getattr(action_space, "nvec", getattr(action_space, "n", 0)))
            at = (
                np.arange(length)[:, None],
                action.reshape(length, -1) + np.cumsum([0, *choices[:-1]]),
            )
            obs["action_mask"][:] = rng.random(obs["action_mask"].shape) < 0.5
            obs["action_mask"][at] = 1
            obs["action_mask"][-1] = 1
        made.append((obs, action))
    return made


def write_minari(path, obs_space, action_space, episodes, env_spec='{"id": "CartPole-v1"}', **more):
    """Write a data set as Minari 0.5 does."""
    folder = path / "data"
    folder.mkdir(parents=True)
    with h5py.File(folder / "main_data.hdf5", "w", track_order=True) as file:
        for number, (obs, action) in enumerate(episodes):
            group = file.create_group(f"episode_{number}")
            group.attrs["id"] = number
            group.attrs["total_steps"] = len(action)
            if isinstance(obs, dict):
                for key, part in obs.items():
                    group.create_dataset(f"observations/{key}", data=part, chunks=True)
            else:
                group.create_dataset("observations", data=obs, chunks=True)
            group.create_dataset("actions", data=action, chunks=True)
            group.create_dataset("rewards", data=np.ones(len(action)))
            group.create_dataset("terminations", data=np.zeros(len(action), bool))
            group.create_dataset("truncations", data=np.zeros(len(action), bool))
    spaces = {"observation_space": obs_space, "action_space": action_space}
    metadata = {
        "total_episodes": len(episodes),
        "total_steps": sum(len(action) for _, action in episodes),
        "data_format": "hdf5",
        "env_spec": env_spec,
        **{name: json.dumps(space_to_json(space)) for name, space in spaces.items()},
        **more,
    }
    (folder / "metadata.json").write_text(json.dumps(metadata))
    return path
