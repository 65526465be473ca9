"""Small data sets that networks are fitted to."""

import numpy as np
import pytest
from small_data import drawn_images


@pytest.fixture(scope="session")
def small(tmp_path_factory):
    """Return an .npz of 75 training and 300 test images: uneven last batches, two test chunks."""
    path = tmp_path_factory.mktemp("data") / "bars.npz"
    x, y = drawn_images(75)
    x_test, y_test = drawn_images(300, seed=1)
    np.savez(path, x_train=x, y_train=y, x_test=x_test, y_test=y_test)
    return path


@pytest.fixture
def quick(small, tmp_path):
    """Return options of a fit of a second: two epochs of five updates."""
    return {
        "data": small,
        "epochs": 2,
        "batch_size": 16,
        "lr": 0.05,
        "padding": 1,
        "quiet": True,
        "run_dir": tmp_path / "run",
    }
