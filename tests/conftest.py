"""What every test relies on."""

import signal

import pytest
from ray_head import ray_head  # noqa: F401


@pytest.fixture(scope="session", autouse=True)
def usual_signals():
    """Let Ctrl-C and SIGTERM do what they usually do, here and in children.

    A shell that starts the tests in the background has them ignore SIGINT, and so do children.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
