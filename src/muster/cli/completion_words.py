"""The words that a shell can complete: verbs, what follows them, options and their values."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field

from muster.cli.arguments import choices_of_options
from muster.cli.completion import SHELLS
from muster.cli.main import VERBS, module_of

Words = tuple[str, ...] | None
"""The words to choose from; None for names of files."""

_OF_RUNS = ("eval", "play", "export", "resume", "runs", "compare", "report", "watch")
_OF_ALGORITHMS = ("train", "tune", "bench", "plan")
_FILES = (
    *("--run-dir", "--config", "--from-checkpoint", "--out", "--video", "--json", "--data"),
    *("--from-run", "--calibration", "--save-calibration"),
)
_DEVICES = ("cpu", "cuda", "mps", "xpu", "auto")


@dataclass(frozen=True)
class VerbWords:
    """The words of one verb."""

    verb: str
    what: str
    """What the verb does."""
    places: tuple[Words, ...]
    """What the first words after the verb are."""
    options: Mapping[str, tuple[str, ...]]
    """Names of the options, by algorithm; under "" those of every algorithm."""
    values: Mapping[str, Words] = field(default_factory=dict)
    """Values of options. A switch has none and is absent, and so is an option of numbers."""


def verbs() -> list[VerbWords]:
    """Return the words of all verbs."""
    return [_words(verb, what) for verb, what in VERBS.items()]


def _words(verb: str, what: str) -> VerbWords:
    values: dict[str, Words] = {}
    by_algorithm: dict[str, tuple[str, ...]] = {}
    for algo, found in _options(verb).items():
        by_algorithm[algo] = tuple(found)
        for name, choices in found.items():
            known = choices or _values().get(name, ())
            if choices == ():  # a switch
                continue
            if known or known is None:
                values[name] = known
    if len(by_algorithm) > 1:
        common = set.intersection(*(set(names) for names in by_algorithm.values()))
        own = {a: tuple(n for n in names if n not in common) for a, names in by_algorithm.items()}
        by_algorithm = {"": tuple(sorted(common)), **own}
    return VerbWords(verb, what, _places(verb), by_algorithm, values)


def _options(verb: str) -> dict[str, dict[str, Words]]:
    """Return the options of a verb with their choices, by algorithm."""
    module = module_of(verb)
    of_algo = getattr(module, "options_of", None)
    if of_algo is not None:
        return {algo: choices_of_options(of_algo(algo)) for algo in _algorithms()}
    if verb == "resume":  # of any algorithm: the run knows which one
        train = module_of("train")
        found = [choices_of_options(train.options_of(algo)) for algo in _algorithms()]
        return {"": {name: choices for each in found for name, choices in each.items()}}
    kind = getattr(module, f"{verb.title()}Options", None)
    return {} if kind is None else {"": choices_of_options(kind)}


def _places(verb: str) -> tuple[Words, ...]:
    if verb in _OF_ALGORITHMS:
        return _algorithms(), _envs()
    if verb in _OF_RUNS:
        return (None,)
    places = {"fit": _models(), "doctor": _envs(), "envs": _envs()}
    places["completion"] = SHELLS
    return (places[verb],) if verb in places else ()


@functools.cache
def _values() -> dict[str, Words]:
    """Return the values of options that are names of something."""
    from muster.exporting.names import FORMATS
    from muster.framework.parallel import ENGINES

    return {
        **dict.fromkeys(_FILES),
        "--algo": _algorithms(),
        "--device": _DEVICES,
        "--engine": tuple(ENGINES),
        "--env": _envs(),
        "--eval-env": _envs(),
        "--model": _models(),
        "--to": tuple(FORMATS),
    }


@functools.cache
def _algorithms() -> tuple[str, ...]:
    from muster.recipes.catalog import algorithms

    return tuple(each.name for each in algorithms())


@functools.cache
def _models() -> tuple[str, ...]:
    from muster.recipes.catalog import models

    return tuple(each.name for each in models())


@functools.cache
def _envs() -> tuple[str, ...]:
    from muster.recipes.catalog import envs

    # A shell takes the colon of `procgen:coinrun` for the end of a word.
    return tuple(each.env_id for each in envs() if ":" not in each.env_id)
