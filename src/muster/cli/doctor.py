"""`muster doctor [ENV]`: what is here, and whether an environment is sound."""

import importlib.metadata
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass

import tyro

from muster.cli.arguments import parse

PACKAGES = ("muster-rl", "torch", "numpy", "numba", "gymnasium", "envpool", "ale-py", "ray")


@dataclass(frozen=True)
class DoctorOptions:
    """Versions, cores and memory; with ENV, a check of that environment."""

    env: tyro.conf.Positional[str | None] = None
    """Id of an environment to check."""


def main(argv: Sequence[str]) -> int:
    """Print what was found; 1 if the environment has problems."""
    options = parse(DoctorOptions, argv, "muster doctor")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    print(f"python {platform.python_version()}, {os.cpu_count()} cores, {memory:.0f} GiB")
    for name in PACKAGES:
        try:
            print(f"  {name:10} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            print(f"  {name:10} not installed")
    if options.env is None:
        return 0
    from muster.envs import UnknownEnvError, check_env

    try:
        report = check_env(options.env)
    except UnknownEnvError as error:
        raise error.to_try("muster doctor {}") from None
    print(f"{report.env_id}, run by {report.backend}")
    for name in ("observation_space", "action_space", "reproducible", "restorable", "steps_per_s"):
        text = " ".join(str(getattr(report, name)).split())
        print(f"  {name:18} {text if len(text) <= 59 else text[:56] + '...'}")
    for problem in report.problems:
        print(f"problem: {problem}")
    return 1 if report.problems else 0
