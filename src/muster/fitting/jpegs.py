"""Pictures that Minari stores as JPEG files inside an HDF5 file, one for each observation."""

import io
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from muster.fitting.errors import DataError
from muster.installs import install

Array = NDArray[Any]


def are_jpegs(found: Any, space: gym.Space[Any], h5py: Any) -> bool:
    """Whether rows of an image space are stored as bytes, of one length or of several."""
    if not isinstance(space, gym.spaces.Box) or space.dtype != np.uint8 or len(space.shape) < 2:
        return False
    if not isinstance(found, h5py.Dataset):
        return False
    of_several = h5py.check_vlen_dtype(found.dtype) == np.uint8 and found.ndim == 1
    return bool(of_several) or bool(found.dtype == np.uint8 and found.ndim == 2)


def read_jpegs(found: Any, shape: tuple[int, ...], where: str) -> Array:
    """Return the pictures as uint8 [N, *shape]; the size of each is checked before it is decoded.

    Raises:
        ValueError: One is damaged, or has another size.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise DataError(
            f"the pictures in {where} cannot be read: {error}",
            "they are JPEGs, which are read by Pillow",
            install("fit"),
        ) from error
    files = found[()]
    pictures = np.empty((len(files), *shape), np.uint8)
    for row, data in enumerate(files):
        try:
            with Image.open(io.BytesIO(data.tobytes()), formats=["JPEG"]) as picture:
                if (picture.height, picture.width) != shape[:2]:
                    raise ValueError(f"it has {picture.height} x {picture.width} pixels")
                pictures[row] = np.asarray(picture).reshape(shape)
        except (OSError, ValueError, SyntaxError) as error:  # Pillow's, for damaged files
            raise ValueError(f"picture {row} of {where} is damaged: {error}") from error
    return pictures
