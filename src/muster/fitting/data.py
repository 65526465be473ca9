"""`Dataset`: labelled samples in memory, and how they are loaded.

"digits" -> scikit-learn's                         folder, tar.gz -> CIFAR as published
file.npz -> x_train, y_train, x_test, y_test       folder of folders -> images by class
folder of recorded episodes -> `EpisodeData`: observations, labelled with actions

All data is read and validated before a process starts or a run directory is created.
"""

import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from muster.errors import OptionError
from muster.fitting.errors import DataError

if TYPE_CHECKING:
    from muster.fitting.episodes import EpisodeData

Array = NDArray[Any]

DIGITS = "digits"


@dataclass(frozen=True)
class Dataset:
    """A training set and a test set."""

    name: str
    """Its name in a run's directory and files."""
    x_train: Array = field(repr=False)
    """uint8 images [N, H, W, C], or float32 vectors [N, numbers]."""
    y_train: Array = field(repr=False)
    """int64 [N], from 0 to the number of classes minus 1."""
    x_test: Array = field(repr=False)
    y_test: Array = field(repr=False)
    classes: tuple[str, ...]
    """The name of each label."""

    def __post_init__(self) -> None:
        for part in ("train", "test"):
            x, y = getattr(self, f"x_{part}"), getattr(self, f"y_{part}")
            if len(x) != len(y) or len(y) < 2:
                raise DataError(
                    f"the {part} set of {self.name} has {len(x)} samples and {len(y)} labels",
                    "each sample has one label, and there are two samples or more",
                    "check the files",
                )
            if y.min() < 0 or y.max() >= len(self.classes):
                raise DataError(
                    f"the {part} set of {self.name} has labels from {y.min()} to {y.max()}",
                    f"it has {len(self.classes)} classes, which are counted from 0",
                    "check the labels",
                )
        if self.x_train.shape[1:] != self.x_test.shape[1:] or len(self.classes) < 2:
            raise DataError(
                f"{self.name} has training samples of shape {self.x_train.shape[1:]}, test samples "
                f"of {self.x_test.shape[1:]} and {len(self.classes)} classes",
                "all samples have one shape, and there are two classes or more",
                "check the files",
            )

    @property
    def is_images(self) -> bool:
        """Whether samples are images."""
        return self.x_train.ndim == 4

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one sample."""
        shape: tuple[int, ...] = self.x_train.shape[1:]
        return shape

    @cached_property
    def sha256(self) -> str:
        """A hash of all samples and labels: a resumed run must use the data that it began with."""
        arrays = (self.x_train, self.y_train, self.x_test, self.y_test)
        return sha256_of(repr(self.classes), arrays)

    def moments(self) -> tuple[Array, Array]:
        """Return mean and spread of the training set, for each channel or number, as float32.

        For images they are computed from integers, so they are the same on every machine.
        """
        x = self.x_train
        if self.is_images:
            counts = np.stack(
                [np.bincount(x[..., each].reshape(-1), minlength=256) for each in range(x.shape[3])]
            ).astype(np.float64)
            values, size = np.arange(256.0), x[..., 0].size
            mean = counts @ values / size
            spread = np.sqrt(np.maximum(counts @ values**2 / size - mean**2, 0.0))
        else:
            mean, spread = x.mean(0, dtype=np.float64), x.std(0, dtype=np.float64)
        spread[spread < 1e-6] = 1.0  # a constant carries no information, and becomes 0
        return mean.astype(np.float32), spread.astype(np.float32)


def rows_of(samples: Any, rows: Any) -> Any:
    """Return some rows of samples, which are an array or a dict of arrays."""
    if isinstance(samples, Mapping):
        return {key: part[rows] for key, part in samples.items()}
    return samples[rows]


def sha256_of(head: str, arrays: Iterable[Array]) -> str:
    """Return a hash of a text, and of the types, shapes and bytes of arrays."""
    digest = hashlib.sha256(head.encode())
    for array in arrays:
        digest.update(f"{array.dtype.str} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).view(np.uint8).reshape(-1).data)
    return digest.hexdigest()


def load_data(data: str | Path, split: float = 0.2, seed: int = 0) -> "Dataset | EpisodeData":
    """Read a data set into memory.

    Args:
        data: `digits`, or the path of a file or folder.
        split: Share used for testing: of the episodes, or of a folder of images without a folder
            `test`.
        seed: Determines which ones these are.

    Raises:
        DataError: The data does not exist, is damaged, or has an unknown format.
    """
    if data == DIGITS:
        from muster.fitting.digits import load_digits

        return load_digits()
    path = Path(data)
    if not path.exists():
        raise _missing(path)
    try:
        return _load_path(path, split, seed)
    except OSError as error:
        raise DataError(
            f"{path} cannot be read", error.strerror or str(error), f"ls -l {path}"
        ) from error


def _load_path(path: Path, split: float, seed: int) -> "Dataset | EpisodeData":
    from muster.fitting import cifar
    from muster.fitting.recordings import find_recording

    if path.is_dir():
        found = find_recording(path)
        if found is not None:
            from muster.fitting.episodes import episode_data

            return episode_data(found, split, seed)
        if (path / "config.yaml").is_file() and (path / "checkpoints").is_dir():
            raise DataError(
                f"{path} is a run, and no data",
                "a run holds a policy, not what it does",
                f"muster eval {path} --save-episodes played, then --data played",
            )
        if cifar.is_cifar(path):
            return cifar.load_cifar(path)
        from muster.fitting.folders import load_folders

        return load_folders(path, split, seed)
    if path.suffix == ".npz":
        from muster.fitting.npz import load_npz

        return load_npz(path)
    if path.name.endswith((".tar.gz", ".tgz", ".tar")):
        return cifar.load_cifar(path)
    raise DataError(
        f"{path} is not a data set that muster can read",
        "it reads CIFAR-10 and CIFAR-100 (folder or tar.gz), folders of images by class, .npz, and "
        "folders of recorded episodes",
        "muster fit resnet8 --data digits",
    )


def check_data(data: str | None) -> None:
    """Reject data that does not exist, before any slow import."""
    if data is None:
        raise OptionError(
            "muster fit needs data",
            "data is digits, or a path: CIFAR, images by class, an .npz file, recorded episodes",
            "muster fit resnet8 --data digits",
        )
    if data != DIGITS and not os.path.exists(data):
        raise _missing(Path(data))


def _missing(path: Path) -> DataError:
    return DataError(
        f"there is no data in {path}",
        "the path does not exist, and muster downloads nothing",
        "--data digits, or the path of an archive or folder",
    )
