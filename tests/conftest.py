"""What every test relies on."""

import os
import signal
import sys
from pathlib import Path

import pytest
from ray_head import ray_head  # noqa: F401

# As in an activated environment: a shell finds `muster` and `pip` of this Python by their names.
os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"


@pytest.fixture(scope="session", autouse=True)
def usual_signals():
    """Let Ctrl-C, SIGTERM and SIGHUP do what they usually do, here and in children.

    A shell that starts the tests in the background has them ignore SIGINT, nohup has them ignore
    SIGHUP, and so do children.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
