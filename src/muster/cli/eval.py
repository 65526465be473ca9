"""`muster eval RUN`: a shell over `muster.workers.evaluate_policy`."""

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

import tyro

from muster.cli.arguments import parse
from muster.cli.played import check_played
from muster.shown import program, shown


@dataclass(frozen=True)
class EvalOptions:
    """Mean and spread of the return of a saved policy, acting greedily."""

    run: tyro.conf.Positional[str]
    """A run directory (its best checkpoint is used), or a checkpoint in it."""
    episodes: int = 20
    """Episodes to play."""
    seed: int = 0
    """Determines the start of the episodes."""
    json: bool = False
    """Print JSON."""
    save_episodes: str | None = None
    """Write the episodes to this new directory: muster fit mlp --data DIR clones the policy."""
    model: str | None = None
    """Network of the policy, if it is your own code: module:Class."""
    env: str | None = None
    """Environment of the policy, if it is your own code: module:Id."""
    algo: str | None = None
    """Algorithm of the policy, if it is your own code: module:name."""
    wrapper: tuple[str, ...] | None = None
    """Wrappers of the environment, if the run has any: module:Wrapper."""


def main(argv: Sequence[str]) -> int:
    """Evaluate and print."""
    options = parse(EvalOptions, argv, "muster eval")
    check_played("eval", options.run, options.episodes, options.seed)
    saved, steps = options.save_episodes, 0
    if saved is not None:
        from muster.data.episodes import check_room

        check_room(saved)
    from muster.recipes.policy import load_policy
    from muster.recipes.recording import record_episodes
    from muster.workers import evaluate_policy

    policy = load_policy(options.run, options.model, options.env, options.algo, options.wrapper)
    if saved is None:
        found = evaluate_policy(
            policy, policy.setup, options.episodes, options.seed, backend=policy.backend
        )
    else:
        found, steps = record_episodes(
            policy, saved, options.episodes, options.seed, run=options.run
        )
    if options.json:
        told = {
            "run": options.run,
            "checkpoint": str(policy.checkpoint.path) if policy.checkpoint else None,
            "env": policy.env,
            "episodes": found.episodes,
            "seed": options.seed,
            "return_mean": found.mean,
            "return_std": found.std,
            "returns": found.returns,
            **({} if saved is None else {"saved_episodes": saved, "saved_steps": steps}),
        }
        print(json.dumps(told, indent=2))
    else:
        spread = f"{found.mean:.1f} +- {found.std:.1f}"
        print(f"{policy.env}: mean return {spread}, {found.episodes} episodes")
        if saved is not None:
            print(f"{steps:,} steps written to {shown(saved)}; to clone the policy:")
            print(f"{program('muster')} fit mlp --data {shlex.quote(shown(saved))}")
    return 0
