"""`muster train ALGO ENV`: a shell over `muster.recipes.train`.

Mistakes are reported in order of the cost of finding them: algorithm, options, environment; only
then is torch imported.
"""

import functools
import shlex
import signal
from collections.abc import Sequence
from dataclasses import dataclass, fields, make_dataclass
from typing import Any

from muster.cli import backends_here, seeds
from muster.cli.arguments import parse, value_of
from muster.cli.wording import as_typed
from muster.errors import MusterError, OptionError
from muster.recipes.algorithms import ALGORITHMS, check_algorithm, load_algorithm
from muster.recipes.own_modules import is_code
from muster.shown import program, shown

_USAGE = f"""usage: muster train ALGO ENV [options]
       muster train --run-dir RUN --resume [options]

algorithms: {", ".join(ALGORITHMS)};
            or your own, as my_module:my_algorithm

All options, with their defaults: muster train ppo CartPole-v1 --help
Only check, and print what would run: muster train ppo CartPole-v1 --dry-run"""


@dataclass(frozen=True)
class FileOption:
    """Options that only the command line has."""

    config: str | None = None
    """A file of options, such as config.yaml of a run. The other options here override it."""
    seeds: int = 1
    """Train with this many seeds, from --seed on, each in a process of its own."""
    jobs: int | None = None
    """With --seeds: how many to train at a time. None: as many as the cores can run."""
    dry_run: bool = False
    """Check everything, and print the config and what would run. Starts and writes nothing."""


_OF_COMMAND = frozenset(field.name for field in fields(FileOption))


def main(argv: Sequence[str]) -> int:
    """Train, and print the result and the command that plays it."""
    named = [] if argv[:1] and argv[0].startswith("-") else list(argv[:2])
    if "--resume" in argv and value_of("--run-dir", argv) is not None:
        if len(named) == 1 or (named and named[1].startswith("-")):
            raise _incomplete(argv)
        return resume(argv[len(named) :], *named)
    if not {"-h", "--help"}.isdisjoint(argv[:2]):
        print(_USAGE)
        return 0
    if len(named) < 2 or named[1].startswith("-"):
        raise _incomplete(argv)
    algo, env = named
    load_algorithm(algo)
    check_algorithm(algo, f"muster train {{}} {env}")
    return _start(algo, env, argv[2:])


def resume(argv: Sequence[str], algo: str | None = None, env: str | None = None) -> int:
    """Resume the run that `argv` names with --run-dir, with its own settings.

    Args:
        argv: The options; the others are those of the run.
        algo: As typed; None for the run's own.
        env: As typed; None for the run's own.
    """
    from muster.cli.arguments import given_names
    from muster.recipes.beforehand import check_beforehand, check_env
    from muster.recipes.resuming import plan_resume, saved_run

    load_algorithm(algo)
    saved = saved_run(str(value_of("--run-dir", argv)))
    prog = f"muster resume {shlex.quote(shown(saved.path))}"
    kind = options_of(saved.algo)
    chosen = parse(kind, argv, prog, kind(**saved.options))
    given = {name: getattr(chosen, name) for name in given_names(kind, argv)}
    for name in ("seeds", "jobs"):
        if name in given:
            raise OptionError(
                f"--{name} is not possible for a run that is resumed",
                "the run has one seed",
                f"muster train {saved.algo} {saved.env} --seeds 5",
            )
    file = given.pop("config", None)
    given.pop("dry_run", None)
    try:
        settings = plan_resume(algo, env, given, file).settings
        check_beforehand(settings, is_new=False)
        check_env(env or saved.env, settings)
    except OptionError as error:
        raise as_typed(error, prog, _names(kind)) from None
    do = _try if chosen.dry_run else _run
    return do(algo, env, given, file, prog)


def _start(algo: str, env: str, argv: Sequence[str]) -> int:
    """Start a new run."""
    from muster.cli.arguments import given_names
    from muster.envs import UnknownEnvError
    from muster.recipes.beforehand import check_beforehand, check_env
    from muster.recipes.presets import preset
    from muster.recipes.settings import read_file, resolve

    prog = f"muster train {algo} {env}"
    file = value_of("--config", argv)
    before = {**preset(algo, env), **({} if file is None else read_file(file, algo, env))}
    kind = options_of(algo)
    chosen = parse(kind, argv, prog, kind(**before))
    if chosen.seeds != 1 and not chosen.dry_run:
        given = [name for name in given_names(kind, argv) if name != "dry_run"]
        return seeds.run(algo, env, {name: getattr(chosen, name) for name in given})
    if chosen.jobs is not None and chosen.seeds == 1:
        raise OptionError(
            f"--jobs {chosen.jobs} needs --seeds",
            "one run has its own number of processes",
            f"{prog} --seeds 5 --jobs {chosen.jobs}, or --workers {chosen.jobs}",
        )
    options = {name: getattr(chosen, name) for name in _names(kind) if name not in _OF_COMMAND}
    try:
        settings = resolve(algo, env, options)
        check_beforehand(settings, is_new=True)
        check_env(env, settings)
    except UnknownEnvError as error:
        raise error.to_try("muster train {} {}", algo) from None
    except OptionError as error:
        raise as_typed(error, prog, options) from None
    do = _try if chosen.dry_run else _run
    code = do(algo, env, options, None, prog)
    if chosen.seeds != 1:
        print(f"this is one of {chosen.seeds} runs, which differ in their seeds and directories")
    return code


def _try(
    algo: str | None, env: str | None, options: dict[str, Any], file: str | None, prog: str
) -> int:
    """Print what `_run` would do; the arguments are the same."""
    from muster.recipes.dry_run import dry_run

    try:
        print(dry_run(algo, env, file, **options))
    except OptionError as error:
        raise as_typed(error, prog, options) from None
    return 0


def _run(
    algo: str | None, env: str | None, options: dict[str, Any], file: str | None, prog: str
) -> int:
    """Train with validated options, and print the result.

    Args:
        algo: The algorithm; None for that of a resumed run.
        env: The environment; None for that of a resumed run.
        options: The options that were given.
        file: A file with more options.
        prog: The command up to its options, for messages.
    """
    from muster.recipes.failure import as_run_error
    from muster.recipes.train import train

    try:
        result = train(algo, env, file, **options)
    except OptionError as error:
        raise error if error.run_failed else as_typed(error, prog, options) from None
    except MusterError:
        raise
    except Exception as error:  # from the code of an environment, model or middleware
        raise as_run_error(error) from error
    score = "not evaluated"
    if result.eval_return_mean is not None:
        score = (
            f"mean return {result.eval_return_mean:.1f} +- {result.eval_return_std:.1f} "
            f"over {result.eval_episodes} greedy episodes"
        )
    print(f"{result.algo} on {result.env}: {score}")
    print(
        f"{result.env_steps:,} steps in {result.seconds:.1f} s, stopped by {result.stopped_by}, "
        f"policy {result.policy_sha256[:12]}"
    )
    eta = result.eta or 0.0
    if result.rho is not None and result.speed is not None and round(100 * eta):
        cores = f"{result.speed['cores']} core{'s' * (result.speed['cores'] > 1)}"
        print(
            f"{100 * eta:.0f} % of what {cores} could do "
            f"(eta {eta:.2f}, rho {result.rho:.2f}), limited by {result.limited_by}"
        )
        if result.speed.get("by_torch"):
            print(f"the network is run by torch, which is slower: {result.speed['by_torch']}")
        other = backends_here.hint(result.env, result.backend, result.limited_by)
        if other is not None:
            print(other)
    command, run = program("muster"), shlex.quote(shown(result.run_dir))
    from muster.envs.procgen import is_procgen

    # The user's own code is named again: a file does not decide which code is run.
    names = {"algo": result.algo, "env": result.env, "model": options.get("model")}
    run += "".join(
        f" --{name} {value}"
        for name, value in names.items()
        if is_code(value) and not is_procgen(str(value))
    )
    if options.get("wrapper"):
        run += f" --wrapper {' '.join(options['wrapper'])}"
    print(f"{command} play {run}")
    if result.stop_signal is not None:
        if is_code(apart := options.get("eval_env")) and not is_procgen(str(apart)):
            run += f" --eval-env {apart}"
        print(f"{command} resume {run}")
        return 128 + signal.Signals(result.stop_signal)
    return 0


@functools.cache
def options_of(algo: str) -> type[Any]:
    """Return the class of an algorithm's options, with those of the command line only."""
    from muster.recipes.settings import all_options

    options = all_options(algo)
    shown = {"__doc__": options.__doc__}  # the first lines of --help
    return make_dataclass("Options", [], bases=(options, FileOption), namespace=shown, frozen=True)


def _names(kind: type[Any]) -> list[str]:
    return [field.name for field in fields(kind)]


def _incomplete(argv: Sequence[str]) -> OptionError:
    if argv and not argv[0].startswith("-"):
        load_algorithm(argv[0])
        check_algorithm(argv[0], "muster train {} CartPole-v1")
        return OptionError(
            f"muster train {argv[0]} needs an environment",
            "it is given after the algorithm",
            f"muster train {argv[0]} CartPole-v1",
        )
    if "--resume" in argv:
        return OptionError(
            "--resume needs a run",
            "the directory of a run says which one to resume",
            "muster resume runs/<env>/<algo>/<date-time>-<seed>",
        )
    return OptionError(
        "muster train needs an algorithm and an environment",
        "the algorithm and the environment come first, the options after them",
        "muster train dqn CartPole-v1",
    )
