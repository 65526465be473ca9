"""Commands that are one of several ranks: how they join, and what ranks other than 0 print."""

import signal
from collections.abc import Sequence
from dataclasses import make_dataclass
from typing import Any

from muster.cli.arguments import given_names, parse, taken_out, value_of
from muster.cli.wording import as_typed
from muster.errors import MusterError, OptionError
from muster.recipes.join_options import JOIN_NAMES, JoinOptions, Membership, split_join

_KIND = "kind"
"""Key of `config.yaml` that a run of `muster fit` has."""


# Options are checked when the variables of torchrun are known, too.
_Unchecked: Any = make_dataclass(
    "Options",
    [],
    bases=(JoinOptions,),
    namespace={"__post_init__": lambda self: None},
    frozen=True,
)


def joined_by(argv: Sequence[str], prog: str) -> Membership | None:
    """Return how a command joins a run; None if it does not.

    Args:
        argv: The options, of which only those for joining are read.
        prog: The command up to its options, for messages.
    """
    words: list[str] = []
    for name in JOIN_NAMES:
        option = f"--{name.replace('_', '-')}"
        value = value_of(option, argv)
        if value is None and option != f"--{name}":
            value = value_of(f"--{name}", argv)
        words += [] if value is None else [option, value]
    try:
        chosen = parse(_Unchecked, words, prog)
        return split_join({name: getattr(chosen, name) for name in JOIN_NAMES})[0]
    except OptionError as error:
        raise as_typed(error, prog, JOIN_NAMES) from None


def follow_resumed(
    joined: Membership, argv: Sequence[str], algo: str | None, env: str | None
) -> int:
    """Take part in a run that rank 0 resumes: its kind and settings come from there.

    Args:
        joined: How this command joins.
        argv: The options.
        algo: As typed; None for that of rank 0.
        env: As typed; None for that of rank 0.
    """
    from muster.recipes.failure import as_run_error
    from muster.recipes.joining import attending

    prog = f"muster resume RUN --join {joined.terms.address}"
    words = [word for word in argv if word != "--resume"]
    taken_out("--run-dir", words)  # rank 0 has the run
    try:
        with attending(joined, None) as (ranks, told):
            if told["config"].get(_KIND) is not None:
                from muster.cli.fit import follow_rank_0

                found: Any = follow_rank_0(ranks, told, joined, words, prog)
            else:
                from muster.cli.train import OF_COMMAND, options_of
                from muster.recipes.following import follow_resumed as follow

                kind = options_of(told["config"]["algo"])
                chosen = parse(kind, words, prog)
                apart = (*JOIN_NAMES, *OF_COMMAND)
                names = [name for name in given_names(kind, words) if name not in apart]
                given = {name: getattr(chosen, name) for name in names}
                file = chosen.config
                found = follow(ranks, joined, told, algo, env, given, file)
    except OptionError as error:
        raise error if error.run_failed else as_typed(error, prog, JOIN_NAMES) from None
    except MusterError:
        raise
    except Exception as error:  # from the code of an environment, model or middleware
        raise as_run_error(error) from error
    return end_of_rank(joined, found)


def end_of_rank(joined: Membership, result: Any) -> int:
    """Print how the run ended for a rank other than 0, and return the exit code."""
    terms = joined.terms
    learnt = getattr(result, "policy_sha256", None)
    what = f"policy {learnt[:12]}" if learnt else f"model {result.model_sha256[:12]}"
    print(
        f"rank {terms.rank} of {terms.world}: {result.train_iter:,} updates, "
        f"stopped by {result.stopped_by}, {what}; rank 0 has the run"
    )
    return 0 if result.stop_signal is None else 128 + signal.Signals(result.stop_signal)
