"""The software and hardware behind a result: versions, commit, machine. Content of `env.json`."""

import importlib.metadata
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from muster.container import cores
from muster.version import __version__

_PACKAGES = ("numpy", "torch", "gymnasium", "numba", "safetensors", "envpool", "ale-py", "ray")


def describe_machine() -> dict[str, Any]:
    """Return the facts about this program and this machine; imports no large package."""
    return {
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "versions": {"muster": __version__, "python": platform.python_version()}
        | {name: version for name in _PACKAGES if (version := _version(name))},
        "git_commit": _git_commit(),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "usable_cores": cores(),
        "memory_bytes": _memory_bytes(),
        "hostname": platform.node(),
        "executable": sys.executable,
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _git_commit() -> str | None:
    """Return the commit of the current directory, if it is in a repository."""
    try:
        done = subprocess.run(
            ["git", "rev-parse", "--verify", "HEAD"], capture_output=True, text=True, timeout=5
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None


def _cpu_model() -> str | None:
    try:
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or None


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return None
