"""A folder of images by class: FOLDER/train/CLASS/*.png and FOLDER/test/..., or FOLDER/CLASS/*."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from muster.fitting.data import Dataset
from muster.fitting.errors import DataError
from muster.fitting.parts import split_by_class
from muster.installs import install

Array = NDArray[Any]

_ENDINGS = (".png", ".jpg", ".jpeg")
_MOST_PIXELS = 1 << 24


def load_folders(path: Path, split: float, seed: int) -> Dataset:
    """Read a folder of images, all of one size.

    Args:
        path: A folder with `train` and `test`, which have one folder for each class, or with the
            folders of the classes only.
        split: In the second case, the share of each class used as the test set.
        seed: Determines which images these are.

    Raises:
        DataError: There are no images, or one is damaged or of another size.
    """
    if (path / "train").is_dir() and (path / "test").is_dir():
        classes = _classes(path / "train")
        x_train, y_train = _read(path / "train", classes)
        x_test, y_test = _read(path / "test", classes)
    else:
        classes = _classes(path)
        images, labels = _read(path, classes)
        train, test = split_by_class(labels, split, seed)
        x_train, y_train = images[train], labels[train]
        x_test, y_test = images[test], labels[test]
    if x_train.shape[3] != x_test.shape[3]:  # grey in one folder, colour in the other
        x_train, x_test = (np.repeat(x, 3, 3) if x.shape[3] == 1 else x for x in (x_train, x_test))
    return Dataset(path.name, x_train, y_train, x_test, y_test, classes)


def _classes(path: Path) -> tuple[str, ...]:
    found = tuple(sorted(each.name for each in path.iterdir() if each.is_dir()))
    if len(found) < 2:
        raise DataError(
            f"{path} has {len(found)} folders",
            "images are in one folder for each class, of which there are two or more",
            f"ls {path}",
        )
    return found


def _read(path: Path, classes: tuple[str, ...]) -> tuple[Array, Array]:
    try:
        from PIL import Image
    except ImportError as error:
        raise DataError(
            f"the images in {path} cannot be read: {error}",
            "PNG and JPEG are read by Pillow",
            install("fit"),
        ) from error
    unknown = sorted(each.name for each in path.iterdir() if each.is_dir()) != sorted(classes)
    if unknown:
        raise DataError(
            f"{path} has other folders than the classes {', '.join(classes)[:80]}",
            "a class is a folder of the training set and of the test set",
            f"ls {path}",
        )
    images, labels = [], []
    for label, name in enumerate(classes):
        files = sorted(each for each in (path / name).iterdir() if each.suffix.lower() in _ENDINGS)
        images += [_pixels(Image, each) for each in files]
        labels += [label] * len(files)
    if not images:
        raise DataError(
            f"there are no images in the folders of {path}",
            f"their names end in {', '.join(_ENDINGS)}",
            f"ls {path / classes[0]}",
        )
    if any(each.shape[2] == 3 for each in images):
        images = [np.repeat(each, 3, 2) if each.shape[2] == 1 else each for each in images]
    sizes = {each.shape[:2] for each in images}
    if len(sizes) > 1:
        raise DataError(
            f"the images in {path} have {len(sizes)} sizes, such as "
            f"{' and '.join(f'{w} x {h}' for h, w in sorted(sizes)[:2])}",
            "muster's convolutional networks read images of one size only",
            "resize them first, for instance with Pillow",
        )
    return np.stack(images), np.array(labels, np.int64)


def _pixels(library: Any, path: Path) -> Array:
    """Return [H, W, 1] for a grey image, [H, W, 3] for any other."""
    try:
        with library.open(path) as image:
            if image.width * image.height > _MOST_PIXELS:
                raise ValueError(f"it has {image.width} x {image.height} pixels")
            pixels = np.asarray(image.convert("L" if image.mode in ("1", "L") else "RGB"))
    except (OSError, ValueError, SyntaxError) as error:  # Pillow's exceptions for damaged files
        raise DataError(
            f"the image {path} is damaged: {error}",
            "the file is incomplete, or is not an image",
            f"rm {path}, or download it again",
        ) from error
    return pixels.reshape(*pixels.shape[:2], -1)
