import importlib

import pytest

from muster import jit
from muster.data import finals, kernels, sum_tree


@pytest.fixture(autouse=True, scope="module")
def a_ring_that_has_to_grow():
    """Start with one place for final observations, so that small tests see it grow and turn."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(finals, "_FIRST_SIZE", 1)
        yield


@pytest.fixture
def without_numba(monkeypatch):
    """Return a function that puts the NumPy twins in place of the compiled kernels."""

    def switch():
        monkeypatch.setenv(jit.ENVIRONMENT_VARIABLE, "0")
        importlib.reload(kernels)
        importlib.reload(sum_tree)

    yield switch
    monkeypatch.undo()
    importlib.reload(kernels)
    importlib.reload(sum_tree)
