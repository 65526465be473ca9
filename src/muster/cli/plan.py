"""`muster plan ALGO ENV`: a shell over `muster.planning.plan`."""

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass, fields, make_dataclass
from pathlib import Path
from typing import Any, Literal

from muster.cli.arguments import given_names, parse, value_of
from muster.cli.output import check_file
from muster.cli.wording import as_typed
from muster.errors import OptionError
from muster.recipes.algorithms import check_algorithm, configuration_of, load_algorithm


@dataclass(frozen=True)
class PlanOptions:
    """Predict steps/s, updates/s, efficiency and the limit for 1, 2, 4, ... workers.

    muster plan ALGO ENV [options]     or: muster plan --from-run RUN [options]

    Costs are measured here first, unless --calibration or --from-run has them.

    docs/plan.md has the equations, and says how far they can be trusted.
    """

    workers: int | str | None = None
    """The most workers, as for train, or a range such as 4..64. None: up to 1,000."""
    machines: int | None = None
    """Machines. None: as many as the processes need, one core each."""
    cores_per_machine: int | None = None
    """Cores of each machine. None: as many as this one has."""
    learners: int | None = None
    """Processes that compute gradients, as for train. None: one."""
    learner_slots: int = 4
    """With --learners, the shares that a batch is cut into: the maximum number of learners."""
    link_gbps: float = 10.0
    """Gigabits per second of each machine's link."""
    latency_us: float = 50.0
    """Microseconds that a message takes from one machine to another."""
    scaling: Literal["grow", "fixed"] | None = None
    """In step: grow, each worker brings --num-envs and --slots; fixed, all workers share them.
    None: fixed if --workers is given."""
    learn_speedup: float = 1.0
    """How many times faster gradients are on the planned machines than here."""
    num_envs: int = 8
    """Environments that step together, as for train."""
    seconds: float = 2.0
    """Seconds of training in each short run."""
    calibration: str | None = None
    """A file of costs that --save-calibration wrote; nothing is measured."""
    from_run: str | None = None
    """A finished run, which has settings and costs; nothing is measured."""
    save_calibration: str | None = None
    """A file to which the costs are written."""
    json: str | None = None
    """A file to which all numbers are written."""


def main(argv: Sequence[str]) -> int:
    """Predict and print."""
    named = [] if argv[:1] and argv[0].startswith("-") else list(argv[:2])
    run = value_of("--from-run", argv)
    if not {"-h", "--help"}.isdisjoint(argv[:2]):
        named = [argv[0] if named else "ppo", "CartPole-v1"]
        argv = [*named, "--help"]
    if len(named) == 1 or (named and named[1].startswith("-")) or not (named or run):
        raise _incomplete(named)
    prog = " ".join(["muster plan", *(named or [f"--from-run {run}"])])
    algo, env = named or (None, None)
    load_algorithm(algo)
    if algo is not None:
        check_algorithm(algo, f"muster plan {{}} {env}")
    from muster.recipes.presets import preset

    what = named or _of_run(str(run))
    kind, rest = options_of(what[0]), argv[len(named) :]
    names = [field.name for field in fields(kind)]
    known = {name: value for name, value in preset(*what).items() if name in names}
    chosen = parse(kind, rest, prog, kind(**known))
    given = {name: getattr(chosen, name) for name in dict.fromkeys(given_names(kind, rest))}
    return _run(algo, env, given, prog, names)


def _run(
    algo: str | None, env: str | None, given: dict[str, Any], prog: str, names: list[str]
) -> int:
    """Predict with the options that were given; `names` are all that there are."""
    files = {name: given.pop(name, None) for name in ("json", "save_calibration")}
    for name, file in files.items():
        if file is not None:
            option = f"--{name.replace('_', '-')}"
            check_file(option, file, f"{prog} {option} plan.json")
    from muster.envs import UnknownEnvError, make_envs
    from muster.planning.calibrate import write_costs
    from muster.planning.plan import plan

    try:
        if given.keys().isdisjoint(("calibration", "from_run")) and env is not None:
            with make_envs(env):
                pass
        result = plan(algo, env, **given)
    except UnknownEnvError as error:
        raise error.to_try("muster plan {} {}", str(algo)) from None
    except OptionError as error:
        raise as_typed(error, prog, names) from None
    print(result)
    if files["save_calibration"] is not None:
        write_costs(result.costs, files["save_calibration"])
    if files["json"] is not None:
        Path(files["json"]).write_text(json.dumps(result.as_json(), indent=2) + "\n")
    return 0


@functools.cache
def options_of(algo: str) -> type[Any]:
    """Return the class of the options of a plan: its own, and those of the algorithm."""
    unchecked = {"__post_init__": lambda self: None, "__doc__": PlanOptions.__doc__}
    bases = (configuration_of(algo), PlanOptions)  # help shows the last one's options first
    return make_dataclass("Options", [], bases=bases, namespace=unchecked, frozen=True)


def _of_run(run: str) -> list[str]:
    """Return the algorithm and the environment of a finished run."""
    from muster.recipes.resuming import saved_run

    saved = saved_run(run)
    return [saved.algo, saved.env]


def _incomplete(named: Sequence[str]) -> OptionError:
    if named:
        load_algorithm(named[0])
        check_algorithm(named[0], "muster plan {} CartPole-v1")
        return OptionError(
            f"muster plan {named[0]} does not say which environment",
            "it is given after the algorithm",
            f"muster plan {named[0]} CartPole-v1",
        )
    return OptionError(
        "muster plan does not say what to plan",
        "the algorithm and the environment come first, the options after them",
        "muster plan ppo CartPole-v1",
    )
