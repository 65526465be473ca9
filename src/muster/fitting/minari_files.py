"""Data sets of Minari (Farama Foundation) in HDF5, read from a local folder.

    DATASET/data/main_data.hdf5    episode_0/{observations, actions, ...}, episode_1/...
    DATASET/data/metadata.json     spaces, number of episodes, spec of the environment

Only numbers are read, and only from this one file: links to other files are rejected, and the spec
of the environment gives an id, never code.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
from numpy.typing import NDArray

from muster.container import free_memory
from muster.envs.space_json import space_from_json
from muster.fitting.errors import DataError
from muster.fitting.jpegs import are_jpegs, read_jpegs
from muster.fitting.recordings import Recording
from muster.installs import install

Array = NDArray[Any]
_FILE = "main_data.hdf5"
_METADATA = "metadata.json"
_MOST_METADATA = 64 << 20


def is_minari(path: Path) -> bool:
    """Whether a folder is a data set of Minari, or its folder `data`."""
    return any((each / _METADATA).is_file() or (each / _FILE).is_file() for each in _places(path))


def read_minari(path: Path) -> Recording:
    """Read the episodes of a data set.

    Raises:
        DataError: It is damaged, or holds something that muster cannot learn from.
    """
    folder = next(
        each for each in _places(path) if (each / _METADATA).is_file() or (each / _FILE).is_file()
    )
    h5py = _library(path)
    if not (folder / _FILE).is_file():
        raise DataError(
            f"{folder} has no {_FILE}",
            "muster reads data sets of Minari in HDF5, not in Arrow or other formats",
            'minari.DataCollector(env, data_format="hdf5")',
        )
    try:
        with h5py.File(folder / _FILE, "r") as file:
            about = _metadata(folder, file)
            spaces = [_space(about, name) for name in ("observation_space", "action_space")]
            names = _episodes(file, about)
            episodes = [_episode(file, name, spaces, h5py) for name in names]
    except (OSError, KeyError, ValueError, TypeError, RuntimeError, RecursionError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(
            f"the data set in {path} cannot be read: {error}",
            "it is damaged, or not in Minari's format",
            f'python -c "import minari; minari.MinariDataset({str(folder)!r})"',
        ) from error
    return Recording(path, episodes, spaces[0], spaces[1], _env_id(about))


def _places(path: Path) -> tuple[Path, Path]:
    return path / "data", path


def _library(path: Path) -> Any:
    try:
        import h5py
    except ImportError as error:
        raise DataError(
            f"the data set in {path} cannot be read: {error}",
            "Minari's data sets are HDF5 files, which h5py reads",
            install("fit"),
        ) from error
    return h5py


def _metadata(folder: Path, file: Any) -> dict[str, Any]:
    """Return what is known of the data set; before Minari 0.5 it was in the HDF5 file."""
    beside = folder / _METADATA
    if not beside.is_file():
        return dict(file.attrs)
    if beside.stat().st_size > _MOST_METADATA:
        raise ValueError(f"{beside} is too large")
    found = json.loads(beside.read_text())
    if not isinstance(found, dict):
        raise ValueError(f"{beside} is not what Minari writes")
    return found


def _space(about: dict[str, Any], name: str) -> gym.Space[Any]:
    text = about.get(name)
    if not isinstance(text, str):
        raise ValueError(f"it does not describe its {name}")
    return space_from_json(json.loads(text))


def _env_id(about: dict[str, Any]) -> str | None:
    """Return the id in the spec of the environment; the rest of the spec is not used."""
    try:
        found = json.loads(about["env_spec"])["id"]
    except (KeyError, TypeError, ValueError):
        return None
    return found if isinstance(found, str) else None


def _episodes(file: Any, about: dict[str, Any]) -> list[str]:
    names = [name for name in file if name.startswith("episode_")]
    wanted = about.get("total_episodes", len(names))
    if len(names) != int(wanted):
        raise ValueError(f"it has {len(names)} episodes, and its metadata say {wanted}")
    return sorted(names, key=lambda name: int(name.removeprefix("episode_")))


def _episode(file: Any, name: str, spaces: list[gym.Space[Any]], h5py: Any) -> tuple[Any, Array]:
    group = _entry(file, name, h5py)
    actions = _array(_entry(group, "actions", h5py), f"{name}/actions", h5py)

    def steps(found: Array, where: str) -> Array:
        """Return the observations that an action followed; there is one more, after the last."""
        if len(found) not in (len(actions), len(actions) + 1):
            raise ValueError(f"{where} has {len(found)} rows for {len(actions)} actions")
        return found[: len(actions)]

    obs = _read(_entry(group, "observations", h5py), spaces[0], f"{name}/observations", h5py, steps)
    return obs, actions


def _read(
    found: Any,
    space: gym.Space[Any],
    where: str,
    h5py: Any,
    steps: Callable[[Array, str], Array],
) -> Any:
    if are_jpegs(found, space, h5py):
        _refuse_elsewhere(found, where)
        return steps(read_jpegs(found, space.shape or (), where), where)
    if not isinstance(space, gym.spaces.Dict):
        return steps(_array(found, where, h5py), where)
    return {
        key: _read(_entry(found, key, h5py), part, f"{where}/{key}", h5py, steps)
        for key, part in space.spaces.items()
    }


def _entry(group: Any, name: str, h5py: Any) -> Any:
    """Return a member of a group, unless it is a link to somewhere else."""
    if not isinstance(group, h5py.Group) or name not in group:
        raise ValueError(f"it has no {name}")
    if not isinstance(group.get(name, getlink=True), h5py.HardLink):
        raise ValueError(f"{name} is a link, which muster does not follow")
    return group[name]


def _refuse_elsewhere(found: Any, where: str) -> None:
    if found.external or found.is_virtual:
        raise ValueError(f"{where} is in another file, which muster does not open")


def _array(found: Any, where: str, h5py: Any) -> Array:
    if not isinstance(found, h5py.Dataset):
        raise ValueError(f"{where} is not one array")
    _refuse_elsewhere(found, where)
    if found.dtype.kind not in "biuf" or not found.shape:
        raise ValueError(f"{where} is {found.dtype} of shape {found.shape}, and no rows of numbers")
    limit = free_memory()
    if limit is not None and found.nbytes > limit:
        raise DataError(
            f"{where} takes {found.nbytes:,} bytes",
            f"this process can get {limit:,} bytes of memory",
            "a machine with more memory, or fewer episodes",
        )
    array: Array = found[()]
    return array
