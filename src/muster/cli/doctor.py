"""`muster doctor [ENV] [--device D] [--address HOST:PORT]`: reports this system and its limits."""

import importlib.metadata
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import tyro

from muster.cli import backends_here, limits_here
from muster.cli.arguments import parse
from muster.cli.wording import as_typed
from muster.devices import AUTO, HOST, check_name, devices_here, find_device
from muster.errors import MusterError, OptionError

if TYPE_CHECKING:
    from muster.envs import CheckReport

PACKAGES = ("muster-rl", "torch", "numpy", "numba", "gymnasium", "envpool", "ale-py")


@dataclass(frozen=True)
class DoctorOptions:
    """Versions, hardware and what would limit training here; with ENV, a check of it.

    With --address, a Ray cluster instead: its nodes, versions, what would fail.

    The exit code is 1 if the environment has problems, or something would fail.
    """

    env: tyro.conf.Positional[Annotated[str | None, tyro.conf.arg(metavar="[ENV]")]] = None
    """Id of an environment to check."""
    device: Annotated[str | None, tyro.conf.arg(metavar="DEVICE")] = None
    """With ENV, time the CPU and this device (auto: all available ones); report the faster one."""
    address: Annotated[str | None, tyro.conf.arg(metavar="HOST:PORT")] = None
    """HOST:PORT of a Ray cluster's head, as ray start --head prints it. If the cluster requires a
        token, it is read from RAY_AUTH_TOKEN, or from the file ~/.ray/auth_token."""


def main(argv: Sequence[str]) -> int:
    """Print the findings; return 1 if the environment or the cluster has problems."""
    options = parse(DoctorOptions, argv, "muster doctor")
    devices = _devices(options)
    if options.address is not None:
        return _look_at_cluster(options.address, options.env)
    if options.env is not None:
        _check_there(options.env)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    print(f"python {platform.python_version()}, {os.cpu_count()} cores, {memory:.0f} GiB")
    for name in PACKAGES:
        try:
            print(f"  {name:10} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            print(f"  {name:10} not installed")
    print(f"  {'ray':10} {limits_here.ray()}")
    print(f"  {'GPU':10} {limits_here.gpu()}")
    here = limits_here.look_here()
    print(f"  {'measured':10} {limits_here.say_measured(here)}")
    report = cost = None
    if options.env is not None:
        report = _check(options.env)
        cost = _time(options.env, report.steps_per_s)
    if options.env is not None and devices:
        _compare(options.env, devices)
    print("what would limit training here")
    for line in limits_here.say_limits(here, cost):
        print(f"  {line}")
    if report is not None and report.backend == "gymnasium":
        faster = backends_here.say_times(backends_here.times(report.env_id))
        if faster is not None:
            print(f"  {faster}")
    return 1 if report is not None and report.problems else 0


def _devices(options: DoctorOptions) -> list[str]:
    """Return the devices to time; raise OptionError for one that is not available."""
    if options.device is None:
        return []
    if options.env is None:
        raise OptionError(
            f"--device {options.device:.80} needs an environment",
            "which device is faster depends on the observations",
            f"muster doctor CartPole-v1 --device {options.device:.80}",
        )
    try:
        check_name(options.device)
        if options.device == AUTO:
            return devices_here()
        return list(dict.fromkeys([HOST.name, find_device(options.device).name]))
    except OptionError as error:
        raise as_typed(error, "muster doctor", ["device"]) from None


def _compare(env: str, devices: list[str]) -> None:
    """Print which device is faster; nothing if no network fits the environment."""
    from muster.cli.devices_here import say_devices, time_device
    from muster.envs import make_envs

    try:
        with make_envs(env) as envs:
            spaces = envs.single_observation_space, envs.single_action_space
        costs = [time_device(name, *spaces) for name in devices]
    except MusterError:  # the problem was reported above
        return
    for line in say_devices(costs, importlib.metadata.version("torch")):
        print(line)


def _look_at_cluster(address: str, env: str | None) -> int:
    from muster.cli import cluster_report

    if env is not None:
        raise OptionError(
            f"muster doctor looks at {env} or at the cluster at {address}, not at both",
            "an environment is checked here, not on the cluster",
            f"muster doctor {env}, then muster doctor --address {address}",
        )
    try:
        return cluster_report.report(address)
    except OptionError as error:
        raise as_typed(error, "muster doctor", ["address"]) from None


def _check_there(env: str) -> None:
    """First reject an id that is unknown, or whose package is not installed."""
    from muster.envs import MissingPackageError, UnknownEnvError, make_envs

    try:
        make_envs(env).close()
    except UnknownEnvError as error:
        raise error.to_try("muster doctor {}") from None
    except MissingPackageError:
        raise
    except Exception:  # it exists and does not work: the check reports the problem
        return


def _check(env: str) -> "CheckReport":
    """Check an environment and print the results."""
    from muster.envs import check_env

    report = check_env(env)
    print(f"{report.env_id}, run by {report.backend}")
    for name in ("observation_space", "action_space", "reproducible", "restorable", "steps_per_s"):
        value = getattr(report, name)
        text = " ".join((f"{value:.0f}" if isinstance(value, float) else str(value)).split())
        print(f"  {name:18} {text if len(text) <= 59 else text[:56] + '...'}")
    for problem in report.problems:
        print(f"problem: {problem}")
    return report


def _time(env: str, steps_per_s: float | None) -> limits_here.EnvCost | None:
    """Compare an environment with acting and learning; None if no network fits it."""
    from muster.envs import make_envs

    if steps_per_s is None:
        return None
    try:
        with make_envs(env) as envs:
            return limits_here.time_env(
                envs.single_observation_space, envs.single_action_space, steps_per_s
            )
    except MusterError:  # the problem was reported above
        return None
