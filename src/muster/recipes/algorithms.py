"""The algorithms by name: muster's own, registered ones, and `module:name` of the user's.

Knows where they are, and loads one when it is asked for. A new one of muster's own is one line in
`ALGORITHMS`; how a user registers one is in docs/own_algorithm.md.
"""

import dataclasses
import importlib
import importlib.metadata
import re
from collections.abc import Collection
from typing import Any

from muster.algos.base import Algorithm
from muster.devices import find_device, networks_on
from muster.errors import OptionError
from muster.recipes.own_modules import check_spec, is_code, load_code
from muster.spelling import nearest

ALGORITHMS = {
    "a2c": Algorithm("muster.algos.a2c_config:A2CConfig", "muster.algos.a2c:A2C"),
    "a3c": Algorithm("muster.algos.a3c_config:A3CConfig", "muster.algos.a3c:A3C"),
    "apex": Algorithm("muster.algos.apex_config:ApexConfig", "muster.algos.apex:ApeX"),
    "appo": Algorithm("muster.algos.appo_config:APPOConfig", "muster.algos.appo:APPO"),
    "dqn": Algorithm("muster.algos.dqn_config:DQNConfig", "muster.algos.dqn:make_dqn"),
    "impala": Algorithm("muster.algos.impala_config:IMPALAConfig", "muster.algos.impala:IMPALA"),
    "ppo": Algorithm("muster.algos.ppo_config:PPOConfig", "muster.algos.ppo:PPO"),
    "pqn": Algorithm("muster.algos.pqn_config:PQNConfig", "muster.algos.pqn:PQN"),
    "r2d2": Algorithm("muster.algos.r2d2_config:R2D2Config", "muster.algos.r2d2:R2D2"),
    "sac": Algorithm("muster.algos.sac_config:SACConfig", "muster.algos.sac:SAC"),
}
"""Muster's own."""

PROGRAMS = {
    "gradients": (
        "muster.recipes.gradients:train_by_gradients",
        "muster.recipes.gradients",
        "muster.recipes.gradients",
    ),
    "in_step": (
        "muster.recipes.in_step:train_in_step",
        "muster.recipes.warm_box",
        "muster.recipes.warm_discrete",
    ),
    "replay": (
        "muster.recipes.replay:train_by_replay",
        "muster.recipes.replay",
        "muster.recipes.replay",
    ),
    "stream": (
        "muster.recipes.stream:train_by_stream",
        "muster.recipes.stream",
        "muster.recipes.stream",
    ),
}
"""What a configuration's `PROGRAM` names: the training program, a function of (job, run directory,
stop request), and the modules that its nodes begin with, for actions of a Box and for others."""

ENTRY_POINTS = "muster.algorithms"
"""Installed packages name their algorithms in this group."""

_HOOKS = (
    "FIXED_ON_RESUME",
    "OF_RUNS",
    "check_actions",
    "check_resume",
    "check_run",
    "default_workers",
    "lacks_replay",
    "memory_needs",
    "rows_of_update",
)
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
_EXAMPLE = "muster train {} CartPole-v1"
_own: dict[str, Algorithm] = {}


def register_algorithm(name: str, algorithm: Algorithm) -> None:
    """Let `muster.train(name, ...)` mean an algorithm of your own.

    Args:
        name: Any that is not taken by another: letters, digits and `_.-`.
        algorithm: The classes of its configuration and of its agent.

    Raises:
        OptionError: The name is taken or none, or this is no algorithm.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise OptionError(
            f"name={name!r:.80} is not possible",
            "an algorithm is asked for by its name: letters, digits and _.-",
            'register_algorithm("my_algorithm", Algorithm(MyConfig, MyAgent))',
        )
    if name in ALGORITHMS:
        raise _taken(name, "is one of muster's own")
    if _own.get(name, algorithm) != algorithm:
        raise _taken(name, "is registered already")
    _register(name, algorithm)


def is_registered(name: str) -> bool:
    """Whether an algorithm of the user's own is known here by this name, or `module:name`."""
    return name in _own


def registered() -> set[str]:
    """Return the names that `register_algorithm` was called for."""
    return {name for name in _own if not is_code(name)}


def load_algorithm(algo: str | None) -> None:
    """Have what `algo` names ready, for who asked for it by name: `module:name` is imported.

    The directory in which muster was started counts as a place of modules.
    """
    if algo is None or algo in _own or not is_code(algo):
        return
    check_spec("algorithm", algo, _EXAMPLE.format("my_package.my_module:my_algorithm"))
    _register(algo, load_code("algorithm", algo, _EXAMPLE))


def own_algorithm(algo: str) -> Algorithm | None:
    """Return what is registered under a name, to be sent to nodes; None if it is muster's own."""
    return _own.get(algo)


def install(algo: str, algorithm: Algorithm) -> None:
    """Register on a node what another process has checked and sent."""
    _own[algo] = algorithm


def refuse_algorithm_of_a_file(algo: str, path: object) -> None:
    """Refuse to load the code that a run's own config names, unless it was loaded already."""
    if is_code(algo) and algo not in _own:
        raise OptionError(
            f"the run in {path} is of an algorithm of code, {algo!r:.80}",
            "a file may come from anybody, so it cannot say which code is run",
            f"--algo {algo:.80}, or algo={algo!r:.80} from Python, if you trust it",
        )


def check_algorithm(algo: str, fix: str | None = None) -> None:
    """Refuse a name that is not known; `fix` is what to try, with `{}` where the right one goes."""
    _find(algo, fix)


def configuration_of(algo: str) -> type:
    """Return the configuration class of an algorithm, or refuse its name."""
    config: type = load(algo, "config")
    return config


def load(algo: str, part: str) -> Any:
    """Return the `config` or the `agent` of an algorithm, or refuse its name."""
    return _loaded(getattr(_find(algo), part))


def program_of(algo: str) -> Any:
    """Return the training program of an algorithm."""
    config: Any = configuration_of(algo)
    return _loaded(PROGRAMS[config.PROGRAM][0])


def nodes_of(algo: str, acts_in_box: bool) -> str:
    """Return the module that nodes of an algorithm's program begin with.

    Args:
        algo: Its name.
        acts_in_box: Whether actions are of a Box.
    """
    config: Any = configuration_of(algo)
    of_box, of_others = PROGRAMS[config.PROGRAM][1:]
    return of_box if acts_in_box else of_others


def make_agent(algo: str, cfg: Any, spaces: tuple[Any, Any], seed: int, device: str = "cpu") -> Any:
    """Make what acts and learns, for these spaces of observations and actions.

    Args:
        algo: Name of the algorithm.
        cfg: Its configuration.
        spaces: Of one observation, of one action.
        seed: Decides the first weights, and what is drawn.
        device: Where its networks are computed; raises OptionError if that is not here.
    """
    with networks_on(find_device(device)):
        return load(algo, "agent")(cfg, *spaces, seed)


def unknown(kind: str, name: str, known: Collection[str], fix: str | None = None) -> OptionError:
    """Make the error for a name that is not known, with the nearest one that is.

    Args:
        kind: What it should name.
        name: What it says.
        known: The names that there are.
        fix: What to try, with `{}` where the right name goes; the name alone if it is not given.
    """
    near = nearest(name, known)
    return OptionError(
        f"there is no {kind} {name!r:.120}",
        f"the nearest is {near!r}" if near else f"there are: {', '.join(sorted(known))}",
        "muster train --help" if near is None else (fix or "{}").replace("{}", near),
    )


def _find(algo: str, fix: str | None = None) -> Algorithm:
    """Return an algorithm by its name: muster's own, a registered one, one of another package."""
    found = ALGORITHMS.get(algo) or _own.get(algo)
    if found is None:
        _ask_packages(algo)
        found = _own.get(algo)
    if found is None and re.search(r"-v\d+$", algo):
        raise OptionError(
            f"there is no algorithm {algo!r:.120}",
            "that is the id of an environment, and the algorithm comes before it",
            f"muster train ppo {algo:.120}",
        )
    if found is None:
        raise unknown("algorithm", algo, {*ALGORITHMS, *_own}, fix)
    return found


def _ask_packages(algo: str) -> None:
    """Register an algorithm that an installed package has under this name."""
    for entry in importlib.metadata.entry_points(group=ENTRY_POINTS, name=algo):
        try:
            found = entry.load()
        except Exception as error:  # whatever that package does, it is named
            raise OptionError(
                f"the algorithm {algo!r} cannot be loaded",
                f"{type(error).__name__}: {error}",
                f'python -c "import {entry.module}"',
            ) from error
        register_algorithm(algo, found)
        return


def _loaded(part: Any) -> Any:
    if not isinstance(part, str):
        return part
    module, _, name = part.partition(":")
    return getattr(importlib.import_module(module), name)


def _register(name: str, algorithm: object) -> None:
    """Register what is an algorithm, and refuse what is none."""
    if not isinstance(algorithm, Algorithm):
        raise _no_algorithm(name, f"it is {algorithm!r:.120}")
    config, agent = _loaded(algorithm.config), algorithm.agent
    if not (isinstance(config, type) and dataclasses.is_dataclass(config)):
        raise _no_algorithm(name, f"its config {config!r:.120} is no class of options")
    absent = [hook for hook in _HOOKS if not hasattr(config, hook)]
    if absent or getattr(config, "PROGRAM", None) not in PROGRAMS:
        lacks = ", ".join(absent) or "a PROGRAM that is one of " + ", ".join(PROGRAMS)
        raise _no_algorithm(name, f"its config {config.__qualname__} has no {lacks}")
    if not (isinstance(agent, str) or callable(agent)):
        raise _no_algorithm(name, f"its agent {agent!r:.120} cannot be called")
    _own[name] = algorithm


def _no_algorithm(name: str, why: str) -> OptionError:
    return OptionError(
        f"{name!r:.120} is no algorithm",
        why,
        "muster.algos.Algorithm(MyConfig, MyAgent), with a subclass of muster.algos.InStepConfig",
    )


def _taken(name: str, how: str) -> OptionError:
    return OptionError(
        f"the algorithm {name!r} {how}",
        "two algorithms under one name would make a run mean two things",
        f'register_algorithm("my_{name}", ...)',
    )
