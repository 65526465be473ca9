"""`muster resume RUN`: a shell over `muster.resume`."""

from collections.abc import Sequence
from pathlib import Path

from muster.cli import fit, seeds, train
from muster.cli.arguments import taken_out
from muster.cli.ranks import follow_resumed, joined_by
from muster.errors import OptionError
from muster.fitting.saved import is_fit

STUDY = "study.json"
"""In a directory of several runs; `muster.tuning.study` writes it."""

_USAGE = """usage: muster resume RUN [options]

Resumes a run of muster train or muster fit, or the runs of muster train
--seeds: algorithm, environment and all settings come from the directory. What
is given besides is a change: it is checked, said and recorded.
Seed, network, environments and slots cannot change. --env-steps is the new
total.

--join HOST:PORT  as one of several ranks (docs/joining.md); only rank 0 needs
                  RUN
--env module:Id   needed where the environment is code of your own, and --model
                  module:Class, --algo module:name or --wrapper module:Name
                  likewise: a file does not decide which code is run
--dry-run         only checks, and prints what would run
All options, with the run's own values: muster resume RUN --help"""


def main(argv: Sequence[str]) -> int:
    """Resume a run, and print the result."""
    if argv[:1] and argv[0] in ("-h", "--help"):
        print(_USAGE)
        return 0
    run, *rest = argv or [""]
    if run.startswith("-") and (joined := joined_by(argv, "muster resume")) and not joined.leads:
        rest = list(argv)  # only rank 0 needs to know where the run is
        return follow_resumed(joined, rest, taken_out("--algo", rest), taken_out("--env", rest))
    if not run or run.startswith("-"):
        raise OptionError(
            "muster resume needs a run",
            "its directory comes first, the options after it",
            "muster resume runs/<env>/<algo>/<date-time>-<seed>",
        )
    joined = joined_by(rest, "muster resume RUN")
    if joined is not None and not joined.leads:  # rank 0 has the run, and says what it is
        return follow_resumed(joined, rest, taken_out("--algo", rest), taken_out("--env", rest))
    if (Path(run) / STUDY).is_file():
        return seeds.resume(run, rest, taken_out("--algo", rest), taken_out("--env", rest))
    if is_fit(run):
        return fit.resume(run, rest, taken_out("--model", rest))
    env, algo = taken_out("--env", rest), taken_out("--algo", rest)
    return train.resume(["--run-dir", run, "--resume", *rest], algo, env)
