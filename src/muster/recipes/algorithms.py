"""Algorithms by name: muster's own, registered ones, and `module:name` from the user's code.

This module knows where each algorithm is, and loads it on demand. One line in `ALGORITHMS` adds a
built-in algorithm; docs/own_algorithm.md explains how a user registers one.
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
"""The built-in algorithms."""

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
"""For each value of a configuration's `PROGRAM`: the training program, a function of (job, run
directory, stop request), and the modules that its nodes import first, for Box
actions and for others."""

ENTRY_POINTS = "muster.algorithms"
"""The entry-point group in which installed packages declare their algorithms."""

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
    """Make `muster.train(name, ...)` use an algorithm of your own.

    Args:
        name: A name that no other algorithm has: letters, digits and `_.-`.
        algorithm: Its configuration class and its agent class.

    Raises:
        OptionError: The name is invalid or taken, or `algorithm` is not an algorithm.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise OptionError(
            f"name={name!r:.80} is not possible",
            "an algorithm is registered under a name of letters, digits and _.-",
            'register_algorithm("my_algorithm", Algorithm(MyConfig, MyAgent))',
        )
    if name in ALGORITHMS:
        raise _taken(name, "is built into muster")
    if _own.get(name, algorithm) != algorithm:
        raise _taken(name, "is already registered")
    _register(name, algorithm)


def is_registered(name: str) -> bool:
    """Whether this process knows a user's algorithm by this name or `module:name`."""
    return name in _own


def registered() -> set[str]:
    """Return the names that were passed to `register_algorithm`."""
    return {name for name in _own if not is_code(name)}


def load_algorithm(algo: str | None) -> None:
    """Load the algorithm that a caller asked for by name: `module:name` is imported.

    The directory in which muster was started is searched for modules.
    """
    if algo is None or algo in _own or not is_code(algo):
        return
    check_spec("algorithm", algo, _EXAMPLE.format("my_package.my_module:my_algorithm"))
    _register(algo, load_code("algorithm", algo, _EXAMPLE))


def own_algorithm(algo: str) -> Algorithm | None:
    """Return the algorithm registered under a name, to send to nodes; None for a built-in one."""
    return _own.get(algo)


def install(algo: str, algorithm: Algorithm) -> None:
    """Register on a node an algorithm that another process has checked and sent."""
    _own[algo] = algorithm


def refuse_algorithm_of_a_file(algo: str, path: object) -> None:
    """Raise OptionError if a run's config names code that this process has not loaded yet."""
    if is_code(algo) and algo not in _own:
        raise OptionError(
            f"the run in {path} uses an algorithm from code, {algo!r:.80}",
            "a file can come from anyone, so it must not choose the code that runs",
            f"--algo {algo:.80}, or algo={algo!r:.80} from Python, if you trust it",
        )


def check_algorithm(algo: str, fix: str | None = None) -> None:
    """Raise OptionError for an unknown name; `fix` is the advice, with `{}` for the right name."""
    _find(algo, fix)


def configuration_of(algo: str) -> type:
    """Return the configuration class of an algorithm. Raises OptionError for an unknown name."""
    config: type = load(algo, "config")
    return config


def load(algo: str, part: str) -> Any:
    """Return the `config` or `agent` of an algorithm. Raises OptionError for an unknown name."""
    return _loaded(getattr(_find(algo), part))


def program_of(algo: str) -> Any:
    """Return the training program of an algorithm."""
    config: Any = configuration_of(algo)
    return _loaded(PROGRAMS[config.PROGRAM][0])


def roles_of_program(algo: str) -> Any:
    """Return the function of a job that says which nodes an algorithm's program has.

    It returns the role that acts, and the number of nodes of each role.
    """
    config: Any = configuration_of(algo)
    module = PROGRAMS[config.PROGRAM][0].partition(":")[0]
    return _loaded(f"{module}:node_roles")


def nodes_of(algo: str, acts_in_box: bool) -> str:
    """Return the module that nodes of an algorithm's program import first.

    Args:
        algo: Name of the algorithm.
        acts_in_box: Whether the action space is a Box.
    """
    config: Any = configuration_of(algo)
    of_box, of_others = PROGRAMS[config.PROGRAM][1:]
    return of_box if acts_in_box else of_others


def make_agent(algo: str, cfg: Any, spaces: tuple[Any, Any], seed: int, device: str = "cpu") -> Any:
    """Make an agent for these spaces of observations and actions.

    Args:
        algo: Name of the algorithm.
        cfg: Its configuration.
        spaces: The spaces of one observation and of one action.
        seed: Determines the first weights, and every random draw.
        device: Where its networks are computed; raises OptionError if it is missing.
    """
    with networks_on(find_device(device)):
        return load(algo, "agent")(cfg, *spaces, seed)


def unknown(kind: str, name: str, known: Collection[str], fix: str | None = None) -> OptionError:
    """Make the error for an unknown name; it suggests the nearest known name.

    Args:
        kind: The kind of thing that the name should refer to.
        name: The unknown name.
        known: The known names.
        fix: The advice, with `{}` for the right name; by default the name alone.
    """
    near = nearest(name, known)
    return OptionError(
        f"there is no {kind} {name!r:.120}",
        f"the nearest is {near!r}" if near else f"there are: {', '.join(sorted(known))}",
        "muster train --help" if near is None else (fix or "{}").replace("{}", near),
    )


def _find(algo: str, fix: str | None = None) -> Algorithm:
    """Return an algorithm by name: built-in, registered, or from an installed package."""
    found = ALGORITHMS.get(algo) or _own.get(algo)
    if found is None:
        _ask_packages(algo)
        found = _own.get(algo)
    if found is None and re.search(r"-v\d+$", algo):
        raise OptionError(
            f"there is no algorithm {algo!r:.120}",
            "this is the id of an environment, and the algorithm comes first",
            f"muster train ppo {algo:.120}",
        )
    if found is None:
        raise unknown("algorithm", algo, {*ALGORITHMS, *_own}, fix)
    return found


def _ask_packages(algo: str) -> None:
    """Register the algorithm that an installed package declares under this name, if any."""
    for entry in importlib.metadata.entry_points(group=ENTRY_POINTS, name=algo):
        try:
            found = entry.load()
        except Exception as error:  # any failure of the package: the message names it
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
    """Check an algorithm and register it. Raises OptionError if it is not one."""
    if not isinstance(algorithm, Algorithm):
        raise _no_algorithm(name, f"it is {algorithm!r:.120}")
    config, agent = _loaded(algorithm.config), algorithm.agent
    if not (isinstance(config, type) and dataclasses.is_dataclass(config)):
        raise _no_algorithm(name, f"its config {config!r:.120} is not a class of options")
    absent = [hook for hook in _HOOKS if not hasattr(config, hook)]
    if absent or getattr(config, "PROGRAM", None) not in PROGRAMS:
        lacks = ", ".join(absent) or "a PROGRAM that is one of " + ", ".join(PROGRAMS)
        raise _no_algorithm(name, f"its config {config.__qualname__} has no {lacks}")
    if not (isinstance(agent, str) or callable(agent)):
        raise _no_algorithm(name, f"its agent {agent!r:.120} cannot be called")
    _own[name] = algorithm


def _no_algorithm(name: str, why: str) -> OptionError:
    return OptionError(
        f"{name!r:.120} is not an algorithm",
        why,
        "muster.algos.Algorithm(MyConfig, MyAgent), with a subclass of muster.algos.InStepConfig",
    )


def _taken(name: str, how: str) -> OptionError:
    return OptionError(
        f"the algorithm {name!r} {how}",
        "with two algorithms under one name, a run would be ambiguous",
        f'register_algorithm("my_{name}", ...)',
    )
