"""`EpisodeRecorder`: what an evaluation plays, episode by episode, for a writer."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from muster.data.episodes import EpisodeWriter, RecordedEpisode

Array = NDArray[Any]


class EpisodeRecorder:
    """Collects the steps of several environments and hands each complete episode to a writer.

    An episode that an evaluation cuts, because it is too long, is not recorded.

    Args:
        writer: Where the episodes go.
    """

    def __init__(self, writer: EpisodeWriter) -> None:
        self._writer = writer
        self._steps: dict[int, list[tuple[Any, Array, float]]] = {}

    def note(
        self,
        obs: Any,
        action: Any,
        reward: Array,
        terminated: NDArray[np.bool_],
        truncated: NDArray[np.bool_],
        final_obs: Any,
        playing: NDArray[np.bool_],
    ) -> None:
        """Record one step of all environments.

        Args:
            obs: What the policy saw, [N, ...] or a dict of such arrays.
            action: What it did, [N, ...].
            reward: [N].
            terminated: Where the environment ended the episode.
            truncated: Where a limit ended it.
            final_obs: What the step led to, where an episode ended.
            playing: Whose episodes count.
        """
        actions = np.asarray(action)
        for env in np.flatnonzero(playing).tolist():
            steps = self._steps.setdefault(env, [])
            steps.append((_row(obs, env), actions[env].copy(), float(reward[env])))
            if terminated[env] or truncated[env]:
                seen, done, rewards = zip(*self._steps.pop(env), strict=True)
                episode = RecordedEpisode(
                    _stacked([*seen, _row(final_obs, env)]),
                    np.stack(done),
                    np.array(rewards, np.float32),
                    bool(terminated[env]),
                )
                self._writer.add(episode)


def _row(obs: Any, env: int) -> Any:
    """Return a copy of one environment's observation: the next step may reuse the memory."""
    if isinstance(obs, Mapping):
        return {key: part[env].copy() for key, part in obs.items()}
    return obs[env].copy()


def _stacked(rows: list[Any]) -> Any:
    if isinstance(rows[0], Mapping):
        return {key: np.stack([row[key] for row in rows]) for key in rows[0]}
    return np.stack(rows)
