"""The faults are those of benchmarks/faults, on a smaller scale."""

import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))


@pytest.fixture
def ram():
    """A directory in memory, where there is one: thousands of syncs take no time there."""
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    path = tempfile.mkdtemp(prefix="muster-test-", dir=base)
    yield Path(path)
    shutil.rmtree(path)
