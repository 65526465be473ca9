"""`muster train ALGO ENV`: a shell over `muster.recipes.train`."""

import signal
from collections.abc import Sequence
from dataclasses import fields, make_dataclass

from muster.errors import OptionError
from muster.recipes.algorithms import ALGORITHMS, check_algorithm, configuration_of


def main(argv: Sequence[str]) -> int:
    """Train, and say what came of it and how to see it play."""
    if len(argv) < 2 or argv[0].startswith("-") or argv[1].startswith("-"):
        _explain(argv)
        return 0 if argv and argv[-1] in ("-h", "--help") else 2
    algo, env, *rest = argv
    check_algorithm(algo)
    from muster.envs import make_envs

    make_envs(env).close()  # what can be refused without torch, which takes a second, is first
    import torch

    from muster.cli.arguments import parse
    from muster.recipes.options import TrainOptions
    from muster.recipes.presets import preset
    from muster.recipes.train import train

    config_class = configuration_of(algo)
    all_options = make_dataclass("Options", [], bases=(TrainOptions, config_class), frozen=True)
    chosen = parse(
        all_options, rest, f"muster train {algo} {env}", all_options(**preset(algo, env))
    )
    torch.set_num_threads(1)  # small networks lose more by waiting for threads than they gain
    result = train(
        algo, env, **{field.name: getattr(chosen, field.name) for field in fields(chosen)}
    )
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
    print(f"muster play {result.run_dir}")
    if result.stop_signal is not None:
        return 128 + signal.Signals(result.stop_signal)
    return 0


def _explain(argv: Sequence[str]) -> None:
    if argv and not argv[0].startswith("-"):
        raise OptionError(
            f"muster train {argv[0]} does not say which environment",
            "it is given after the algorithm",
            f"muster train {argv[0]} CartPole-v1",
        )
    print(f"usage: muster train ALGO ENV [options]\n\nalgorithms: {', '.join(ALGORITHMS)}\n")
    print("All options, with their defaults: muster train dqn CartPole-v1 --help")
