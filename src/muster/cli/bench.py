"""`muster bench [ALGO] [ENV]`: a shell over `muster.recipes.bench`."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields, make_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from muster.cli.arguments import parse
from muster.cli.output import can_be_written
from muster.cli.wording import as_typed
from muster.errors import OptionError
from muster.recipes.algorithms import check_algorithm, configuration_of, load_algorithm

if TYPE_CHECKING:
    from muster.recipes.bench import BenchReport

_WIDTH = 80
_MEANING = {
    "env": "stepping environments",
    "act": "choosing actions",
    "learn": "gradients and updates",
    "exchange": "waiting for other workers",
    "rest": "advantages, shuffling, metrics, ...",
}


@dataclass(frozen=True)
class BenchOptions:
    """Train for some seconds, and report how fast that was and could have been.

    muster bench [ALGO] [ENV] [options]     default: ppo on CartPole-v1

    rho: trained steps/s, over those of the bare environments with random actions.

    eta: trained steps/s, over the bound: only stepping, matrix products and copies.

    Both count the cores that workers use, not idle ones.
    """

    seconds: float = 5.0
    """Seconds of training, without compilation. Measuring takes up to two seconds more."""
    workers: int | None = None
    """Processes: 0 for this one alone. None: all cores."""
    num_envs: int = 8
    """Environments that step together, in all workers."""
    seed: int = 0
    """Determines everything random."""
    json: str | None = None
    """A file to which all numbers are written."""


def main(argv: Sequence[str]) -> int:
    """Measure and print."""
    algo, env, rest = _what(argv)
    load_algorithm(algo)
    check_algorithm(algo, f"muster bench {{}} {env}")
    prog = f"muster bench {algo} {env}"
    options = _read_options(algo, env, rest, prog)
    file: str | None = options.pop("json")
    if file is not None:
        _check_file(file, prog)
    from muster.envs import UnknownEnvError, make_envs
    from muster.recipes.bench import bench, check

    try:
        check(algo, env, options)
        with make_envs(env):
            pass
    except UnknownEnvError as error:
        raise error.to_try("muster bench {} {}", algo) from None
    except OptionError as error:
        raise as_typed(error, prog, options) from None
    report = bench(algo, env, **options)
    for line in table(report):
        print(line)
    if file is not None:
        Path(file).write_text(json.dumps(report.as_json(), indent=2) + "\n")
    return 0 if report.stop_signal is None else 128 + report.stop_signal


def table(report: "BenchReport") -> list[str]:
    """Return a report as lines of at most 80 columns."""
    cores = report.details["cores"]
    where = f"{report.workers} workers" if report.workers > 1 else "1 process"
    on = f"{cores} core{'s' * (cores > 1)}"
    how = f": {where}, {on}, {report.num_envs} environments"
    what = f"{report.algo} on {report.env}"
    lines = [
        (what if len(what + how) <= _WIDTH else what[: _WIDTH - len(how) - 3] + "...") + how,
        f"  {'trained':10} {report.steps_per_s:>12,.0f} steps/s",
        f"  {'bare':10} {report.bare_steps_per_s:>12,.0f} steps/s   rho {report.rho:.2f}",
        f"  {'bound':10} {report.bound_steps_per_s:>12,.0f} steps/s   eta {report.eta:.2f}",
        "where the time goes",
    ]
    for name, share in report.split.items():
        mark = "   <- limits" if name == report.limited_by else ""
        lines.append(f"  {name:10} {100 * share:>10.0f} %   {_MEANING[name]}{mark}")
    by_torch = report.details.get("by_torch")
    how = f"run by torch, slower: {by_torch}" if by_torch else "compiled"
    lines.append(f"the network is {how}"[:_WIDTH])
    if report.stop_signal is not None:
        lines.append("stopped by a signal: these numbers are of the training until then")
    elif report.advice is not None:
        lines.append(f"try {report.advice}" if report.advice[0] == "-" else report.advice)
    return lines


def _what(argv: Sequence[str]) -> tuple[str, str, Sequence[str]]:
    """Return algorithm, environment and the remaining words."""
    names = ["ppo", "CartPole-v1"]
    given = 0
    while given < min(2, len(argv)) and not argv[given].startswith("-"):
        names[given] = argv[given]
        given += 1
    return names[0], names[1], argv[given:]


def options_of(algo: str) -> type[Any]:
    """Return the class of the options of a measurement, with those of an algorithm."""
    unchecked = {"__post_init__": lambda self: None, "__doc__": BenchOptions.__doc__}
    bases = (configuration_of(algo), BenchOptions)  # help shows the last one's options first
    return make_dataclass("Options", [], bases=bases, namespace=unchecked, frozen=True)


def _read_options(algo: str, env: str, argv: Sequence[str], prog: str) -> dict[str, Any]:
    """Return all options by name: those of `argv`, the preset and the defaults."""
    from muster.recipes.presets import preset

    flat = options_of(algo)
    names = [field.name for field in fields(flat)]
    known = {name: value for name, value in preset(algo, env).items() if name in names}
    chosen = parse(flat, argv, prog, flat(**known))
    return {name: getattr(chosen, name) for name in names}


def _check_file(file: str, prog: str) -> None:
    """Raise OptionError for a file that cannot be written, before anything is measured."""
    path = Path(file)
    if not can_be_written(path):
        raise OptionError(
            f"--json {file!r:.120} cannot be written",
            "it must be a file in a directory that exists and is writable",
            f"{prog} --json bench.json",
        )
