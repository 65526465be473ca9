import pytest

from muster.data import finals


@pytest.fixture(autouse=True, scope="module")
def a_ring_that_has_to_grow():
    """Start with one place for final observations, so that small tests see it grow and turn."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(finals, "_FIRST_SIZE", 1)
        yield
