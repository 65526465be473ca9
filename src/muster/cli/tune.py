"""`muster tune ALGO ENV --grid lr=0.01,0.001`: a shell over `muster.tune`."""

import functools
import shlex
import signal
from collections.abc import Sequence
from dataclasses import dataclass, fields, make_dataclass
from typing import TYPE_CHECKING, Any, Literal

import tyro

from muster.cli.arguments import given_names, parse, value_of
from muster.cli.wording import as_typed
from muster.errors import OptionError
from muster.recipes.algorithms import ALGORITHMS, check_algorithm, load_algorithm
from muster.shown import program, shown

if TYPE_CHECKING:
    from muster.tuning.ranking import TuneResult

_USAGE = f"""usage: muster tune ALGO ENV --grid lr=0.01,0.001 gamma=0.9,0.99 [options]
       muster tune ALGO ENV --space lr=log:1e-5:1e-2 --search random [options]
       muster tune ALGO ENV --space lr=log:1e-5:1e-2 --scheduler pbt [options]
       muster tune --resume DIR [--jobs J] [--quiet]

algorithms: {", ".join(ALGORITHMS)};
            or your own, as my_module:my_algorithm

  lr=0.01,0.001      these values
  gamma=0.9:0.999    a range, with --space; whole numbers if the option is one
  lr=log:1e-5:1e-2   a range, spread evenly over orders of magnitude
  hidden=64+64,128   a list is written with +

Ctrl-C saves all trials and leaves; --resume goes on.
All options, with their defaults: muster tune ppo CartPole-v1 --help"""


@dataclass(frozen=True)
class StudyOptions:
    """Options that only a study has. All other options of a run are the same for all trials."""

    grid: tuple[str, ...] = ()
    """Values to try, in every combination: lr=0.01,0.001 gamma=0.9,0.99."""
    space: tuple[str, ...] = ()
    """Ranges to draw from: lr=log:1e-5:1e-2 gamma=0.9:0.999 hidden=64+64,128+128."""
    search: Literal["random", "tpe"] | None = None
    """How to draw from --space. None: random. tpe learns from trials, and needs Optuna."""
    trials: int | None = None
    """Trials to draw from --space. None: 20, or 8 with pbt."""
    jobs: int | None = None
    """Trials at a time. None: as many as the cores can run."""
    confirm: int | None = None
    """Number of unseen seeds with which the five best settings run again. None: 5, 0 with pbt."""
    scheduler: Literal["none", "median", "asha", "pbt"] | None = None
    """What happens to trials that fall behind: none, stopped by median or asha, or with pbt they
    go on as copies of better ones. None: median with --space, none with --grid."""
    generations: int | None = None
    """How often pbt compares trials. None: 10."""
    out: str | None = None
    """Directory of the study. None: a new one under tunes/."""
    resume: str | None = None  # type: ignore[assignment, unused-ignore]  # of a run, it is a switch
    """Directory of a study to resume."""
    config: str | None = None
    """A file of options for all trials, such as config.yaml of a run."""
    run_dir: tyro.conf.Suppress[str | None] = None


def main(argv: Sequence[str]) -> int:
    """Tune, and print the result."""
    named = list(argv[:2]) if argv and not argv[0].startswith("-") else []
    resumes = any(word == "--resume" or word.startswith("--resume=") for word in argv)
    if not resumes and not {"-h", "--help"}.isdisjoint(argv[:2]):
        print(_USAGE)
        return 0
    if not (resumes and not named) and (len(named) < 2 or named[1].startswith("-")):
        raise _incomplete(named)
    algo, env = named or (None, None)
    prog = " ".join(["muster tune", *named])
    place = value_of("--run-dir", argv)
    if place is not None:
        raise OptionError(
            "--run-dir is not possible for a study",
            "the run directory of each trial is in the directory of the study",
            f"{prog} ... --out {shlex.quote(place)}",
        )
    if algo is not None:
        load_algorithm(algo)
        check_algorithm(algo, f"muster tune {{}} {env}")
    kind, rest = options_of(algo or "ppo"), argv[len(named) :]
    chosen = parse(kind, rest, prog, _preset(kind, named) if named else None)
    names = dict.fromkeys(given_names(kind, rest))
    given = {name: getattr(chosen, name) for name in names}
    return _run(algo, env, given, prog)


def _run(algo: str | None, env: str | None, given: dict[str, Any], prog: str) -> int:
    from muster.tuning.errors import SpaceError
    from muster.tuning.space import words_to_space
    from muster.tuning.tune import tune

    for where in ("grid", "space"):
        if where in given:
            given[where] = words_to_space(given[where], where)
    try:
        result = tune(algo, env, **given)
    except SpaceError as error:
        raise _after(prog, error) from None
    except OptionError as error:
        raise as_typed(error, prog, given) from None
    return _report(result)


def _report(result: "TuneResult") -> int:
    place = shlex.quote(shown(result.path))
    if result.stop_signal is not None:
        print(f"{program('muster')} tune --resume {place}")
        return 128 + signal.Signals(result.stop_signal)
    print(f"{result.algo} on {result.env}: the best settings first")
    print(result.table())
    if result.confirm:
        print(f"IQM: interquartile mean over {result.confirm} unseen seeds")
    if result.best is not None:
        file = shlex.quote(shown(result.best_file))
        print(f"{program('muster')} train {result.algo} {result.env} --config {file}")
        print(f"{program('muster')} play {shlex.quote(shown(result.best_run))}")
    return 0


@functools.cache
def options_of(algo: str) -> type[Any]:
    """Return the class of the options of a study, with those of an algorithm."""
    from muster.recipes.settings import all_options

    about = f"Try many settings of {algo}, each in a process of its own, and find the best."
    bases = (StudyOptions, all_options(algo))
    return make_dataclass("Options", [], bases=bases, namespace={"__doc__": about}, frozen=True)


def _preset(kind: type[Any], named: Sequence[str]) -> Any:
    """Return the defaults for this algorithm and environment."""
    from muster.recipes.presets import preset

    known = {field.name for field in fields(kind)}
    return kind(**{k: v for k, v in preset(*named).items() if k in known})


def _after(prog: str, error: OptionError) -> OptionError:
    """Return an error whose advice is a whole command, even if it was only an option."""
    what, why, fix = error.args
    return type(error)(what, why, f"{prog} {fix}" if fix.startswith("--") else fix)


def _incomplete(named: Sequence[str]) -> OptionError:
    if named:
        load_algorithm(named[0])
        check_algorithm(named[0], "muster tune {} CartPole-v1")
        return OptionError(
            f"muster tune {named[0]} needs an environment",
            "it is given after the algorithm",
            f"muster tune {named[0]} CartPole-v1 --grid lr=0.01,0.001",
        )
    return OptionError(
        "muster tune needs an algorithm and an environment",
        "the algorithm and the environment come first, the options after them",
        "muster tune ppo CartPole-v1 --grid lr=0.01,0.001",
    )
