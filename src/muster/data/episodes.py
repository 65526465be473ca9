"""Recorded episodes in a directory: written shard by shard, read again with every byte verified.

    EpisodeWriter.add -> episodes in memory -> a shard of some 64 MB -> DIR/step-<steps so far>/
    read_episodes     <- all shards, in order

A shard has the form of a checkpoint (safetensors and a JSON manifest), so it is complete or absent.
If the program that records is killed, the shards before are whole episodes and can be used.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from muster.errors import OptionError
from muster.run import CheckpointError, CheckpointStore
from muster.run.reading import NAME

Array = NDArray[Any]
KIND = "episodes"
_PART = "episodes"
_SHARD_BYTES = 64 << 20


@dataclass(frozen=True)
class RecordedEpisode:
    """One episode of T steps."""

    obs: Any
    """[T + 1, ...], or a dict of such arrays: the last row is the result of the last action."""
    action: Array
    """[T, ...], as a policy of muster gives them: discrete ones count from 0."""
    reward: Array
    """float32 [T]."""
    terminated: bool
    """Whether the environment ended the episode, not a limit on its length."""

    @property
    def steps(self) -> int:
        """Number of steps, T."""
        return len(self.action)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        parts = self.obs.values() if isinstance(self.obs, Mapping) else (self.obs,)
        return sum(int(each.nbytes) for each in (*parts, self.action, self.reward))


class EpisodeWriter:
    """Writes episodes into a new directory. Close it at the end, or use it in a `with` block.

    Args:
        path: A directory that does not exist yet, or is empty.
        meta: What to know about all episodes: environment, spaces; plain values.

    Raises:
        OptionError: There is something in the directory.
    """

    def __init__(self, path: str | Path, meta: Mapping[str, Any]) -> None:
        check_room(path)
        self._store = CheckpointStore(path)
        self._meta = {**meta, "kind": KIND}
        self._pending: list[RecordedEpisode] = []
        self.episodes = 0
        """Episodes so far."""
        self.steps = 0
        """Steps so far."""

    def add(self, episode: RecordedEpisode) -> None:
        """Add an episode, and write a shard if there is enough for one."""
        self._pending.append(episode)
        self.episodes += 1
        self.steps += episode.steps
        if sum(each.nbytes for each in self._pending) >= _SHARD_BYTES:
            self._write()

    def close(self) -> None:
        """Write what is left."""
        if self._pending:
            self._write()

    def __enter__(self) -> "EpisodeWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write(self) -> None:
        done, self._pending = self._pending, []
        columns = {
            "obs": _joined([each.obs for each in done]),
            "action": np.concatenate([each.action for each in done]),
            "reward": np.concatenate([each.reward for each in done]),
            "steps": np.array([each.steps for each in done], np.int64),
            "terminated": np.array([each.terminated for each in done], np.bool_),
        }
        counters = {"env_step": self.steps, "episodes": self.episodes}
        meta = {**self._meta, "first_episode": self.episodes - len(done)}
        self._store.save(self.steps, {_PART: columns}, counters, meta)


def check_room(path: str | Path) -> None:
    """Raise OptionError unless episodes can be written to a new or an empty directory."""
    place = Path(path)
    if place.exists() and not (place.is_dir() and not any(place.iterdir())):
        raise OptionError(
            f"there is something in {place} already",
            "recorded episodes need a separate directory",
            f"another directory, or rm -r {place}",
        )


def is_recorded(path: Path) -> bool:
    """Whether a directory holds episodes that `EpisodeWriter` wrote."""
    return any((path / name / "manifest.json").is_file() for name in _shards(path))


def read_episodes(path: Path) -> tuple[dict[str, Any], list[RecordedEpisode]]:
    """Return what is known about all episodes, and the episodes in the order of recording.

    Raises:
        CheckpointError: A file is missing, damaged, or does not hold episodes.
    """
    store, meta, found = CheckpointStore(path), {}, list[RecordedEpisode]()
    for name in _shards(path):
        shard = store.load(path / name)
        if shard.meta.get("kind") != KIND or shard.meta.get("first_episode") != len(found):
            raise _unreadable(path / name, "it is not the shard that follows the one before it")
        try:
            found += _episodes(shard.parts[_PART])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise _unreadable(path / name, str(error)) from error
        meta = shard.meta
    return meta, found


def _shards(path: Path) -> list[str]:
    names = [name for name in os.listdir(path) if NAME.fullmatch(name)]
    return sorted(names, key=lambda name: int(name.removeprefix("step-")))


def _episodes(columns: Mapping[str, Any]) -> Iterator[RecordedEpisode]:
    steps = [int(n) for n in columns["steps"]]
    total, ended = sum(steps), columns["terminated"].tolist()
    lengths = {"action": total, "reward": total}
    for name, length in lengths.items():
        if len(columns[name]) != length:
            raise ValueError(f"it has {length} steps, and {len(columns[name])} of {name!r}")
    parts = columns["obs"] if isinstance(columns["obs"], Mapping) else {"": columns["obs"]}
    if any(len(part) != total + len(steps) for part in parts.values()) or min(steps) < 1:
        raise ValueError("its observations do not fit the lengths of its episodes")
    if len(ended) != len(steps):
        raise ValueError("it does not record how every episode ended")
    start = 0
    for number, (length, terminated) in enumerate(zip(steps, ended, strict=True)):
        here = slice(start, start + length)
        seen = slice(start + number, start + number + length + 1)
        obs = {key: part[seen] for key, part in parts.items()}
        yield RecordedEpisode(
            obs if isinstance(columns["obs"], Mapping) else obs[""],
            columns["action"][here],
            columns["reward"][here],
            bool(terminated),
        )
        start += length


def _joined(parts: list[Any]) -> Any:
    if isinstance(parts[0], Mapping):
        return {key: _joined([part[key] for part in parts]) for key in parts[0]}
    return np.concatenate(parts)


def _unreadable(path: Path, why: str) -> CheckpointError:
    return CheckpointError(
        f"{path} holds no episodes that can be read",
        why,
        "record them again: muster eval RUN --save-episodes DIR",
    )
