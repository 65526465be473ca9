"""`muster train ALGO ENV`: a shell over `muster.recipes.train`.

What can be refused is refused in the order of what it costs to know: algorithm, options,
environment, and only then is torch loaded.
"""

import signal
from collections.abc import Sequence
from dataclasses import dataclass, fields, make_dataclass
from typing import Any

from muster.cli.wording import as_typed
from muster.errors import MusterError, OptionError
from muster.recipes.algorithms import ALGORITHMS, check_algorithm

_USAGE = f"""usage: muster train ALGO ENV [options]

algorithms: {", ".join(ALGORITHMS)}

All options, with their defaults: muster train ppo CartPole-v1 --help"""


@dataclass(frozen=True)
class FileOption:
    """What only the command line has."""

    config: str | None = None
    """A file of options, such as config.yaml of a run. The other options here come before it."""


def main(argv: Sequence[str]) -> int:
    """Train, and say what came of it and how to see it play."""
    if not {"-h", "--help"}.isdisjoint(argv[:2]):
        print(_USAGE)
        return 0
    if len(argv) < 2 or argv[0].startswith("-") or argv[1].startswith("-"):
        raise _incomplete(argv)
    algo, env, *rest = argv
    check_algorithm(algo)
    options = _read_options(algo, env, rest)
    _check_env(algo, env, options)

    from muster.recipes.failure import as_run_error
    from muster.recipes.train import train

    try:
        result = train(algo, env, **options)
    except MusterError:
        raise
    except Exception as error:  # of an environment's, a model's or a middleware's own code
        raise as_run_error(error) from error
    score = "not evaluated"
    if result.eval_return_mean is not None:
        score = (
            f"mean return {result.eval_return_mean:.1f} +- {result.eval_return_std:.1f} "
            f"over {result.eval_episodes} greedy episodes"
        )
    print(f"{algo} on {env}: {score}")
    print(
        f"{result.env_steps:,} steps in {result.seconds:.1f} s, stopped by {result.stopped_by}, "
        f"policy {result.policy_sha256[:12]}"
    )
    if result.rho is not None and result.eta is not None and result.speed is not None:
        cores = f"{result.speed['cores']} core{'s' * (result.speed['cores'] > 1)}"
        print(
            f"{100 * result.eta:.0f} % of what {cores} could do "
            f"(eta {result.eta:.2f}, rho {result.rho:.2f}), limited by {result.limited_by}"
        )
    print(f"muster play {result.run_dir}")
    if result.stop_signal is not None:
        return 128 + signal.Signals(result.stop_signal)
    return 0


def _read_options(algo: str, env: str, argv: Sequence[str]) -> dict[str, Any]:
    """Return all options by name: those of `argv`, the file, the preset and the defaults."""
    from muster.cli.arguments import parse, value_of
    from muster.recipes.presets import preset
    from muster.recipes.settings import all_options, read_file, resolve

    prog = f"muster train {algo} {env}"
    file = value_of("--config", argv)
    before = {**preset(algo, env), **({} if file is None else read_file(file, algo, env))}
    flat = all_options(algo)
    with_file = make_dataclass("Options", [], bases=(flat, FileOption), frozen=True)
    chosen = parse(with_file, argv, prog, with_file(**before))
    options = {field.name: getattr(chosen, field.name) for field in fields(flat)}
    try:
        resolve(algo, env, options)
    except OptionError as error:
        raise as_typed(error, prog, options) from None
    return options


def _check_env(algo: str, env: str, options: dict[str, Any]) -> None:
    """Refuse an environment that is not known, or whose observations would not fit into memory."""
    from muster.envs import UnknownEnvError, make_envs
    from muster.recipes.memory import check_memory
    from muster.recipes.settings import resolve

    try:
        with make_envs(env) as envs:
            spaces = envs.single_observation_space, envs.single_action_space
            settings = resolve(algo, env, options)
            settings.config.check_actions(spaces[1])
            check_memory(settings, *spaces)
    except UnknownEnvError as error:
        raise error.to_try("muster train {} {}", algo) from None
    except OptionError as error:
        raise as_typed(error, f"muster train {algo} {env}", options) from None


def _incomplete(argv: Sequence[str]) -> OptionError:
    if argv and not argv[0].startswith("-"):
        check_algorithm(argv[0])
        return OptionError(
            f"muster train {argv[0]} does not say which environment",
            "it is given after the algorithm",
            f"muster train {argv[0]} CartPole-v1",
        )
    return OptionError(
        "muster train does not say what to train",
        "the algorithm and the environment come first, the options after them",
        "muster train dqn CartPole-v1",
    )
