"""`make_envs`: from the id of an environment to a `VectorEnv`, or a helpful error.

remote:HOST:PORT ─────────────────────────────────────────> GymnasiumVectorEnv of RemoteEnv
id -> Gymnasium's registry ─ there ──────────────────────> GymnasiumVectorEnv
          └ not there -> the package it comes with -> EnvPool's registry -> EnvPoolVectorEnv
                                                            └ UnknownEnvError, nearest id
"""

import copy
import difflib
import importlib
import importlib.util
import operator
import os
import re
import shlex
import sys
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import gymnasium as gym

from muster.envs.base import VectorEnv
from muster.envs.envpool_ids import surely_not_in_envpool
from muster.envs.errors import (
    MissingPackageError,
    UnknownEnvError,
    one_line,
)
from muster.envs.procgen import find_procgen, is_procgen
from muster.envs.setup import EnvSetup
from muster.envs.small_seeds import SmallSeeds
from muster.envs.vector import GymnasiumVectorEnv
from muster.errors import MusterError, OptionError
from muster.framework.names import name_of
from muster.installs import install

BACKENDS = ("auto", "gymnasium", "envpool")

MAX_ENVS = 65_536

_ALIKE = 0.65
"""How similar two names must be for one to count as a misspelling of the other."""

_PLUGINS: dict[str, tuple[tuple[str, ...], str, str | None]] = {
    "ALE/": (("ale_py",), "ale-py", "envs"),
    "MiniGrid-": (("minigrid",), "minigrid", None),
    "BabyAI-": (("minigrid",), "minigrid", None),
    "dm_control/": (("dm_control", "shimmy"), "shimmy[dm-control]", None),
}
"""Prefix of an id -> the modules to import, of which the last one registers it; their package; and
muster's extra with it."""

REMOTE = "remote:"
"""Prefix of the address of a server."""

_OLD_GENERATOR = "dm_control/"
"""Prefix of ids whose environments accept seeds of 32 bits only."""


def make_envs(
    env_id: str | EnvSetup | Callable[..., gym.Env[Any, Any]],
    num_envs: int = 1,
    seed: int = 0,
    backend: str = "auto",
    first_env: int = 0,
    **env_kwargs: Any,
) -> VectorEnv:
    """Make several environments of one kind, stepped together in this process.

    Args:
        env_id: An id of Gymnasium, such as "CartPole-v1"; "module:Id-v0" imports the module first;
            an id of EnvPool; "remote:HOST:PORT" of a `muster serve-env`; a function that returns a
            new `gymnasium.Env`; or an `EnvSetup`.
        num_envs: The number of environments.
        seed: The source of every random number in them.
        backend: "gymnasium", "envpool", or "auto": Gymnasium, unless only EnvPool has the id.
            `.backend` of the result tells which one was used.
        first_env: The number of the first env, if several processes share the envs of one seed: env
            3 of 8 is the same in every process.
        **env_kwargs: Arguments of each environment, such as `max_episode_steps=200`.

    Raises:
        UnknownEnvError: There is no such id; the message names the nearest one.
        MissingPackageError: A package has to be installed; the message has the command.
        EnvError: An environment cannot be made, or its spaces are not supported.
        OptionError: An argument is invalid.
    """
    num_envs = _whole_number("num_envs", num_envs, 1, MAX_ENVS)
    seed = _whole_number("seed", seed, None, None)
    first_env = _whole_number("first_env", first_env, 0, MAX_ENVS)
    if backend not in BACKENDS:
        raise OptionError(
            f"backend={backend!r} is not possible",
            f"the backends are {', '.join(BACKENDS)}",
            'backend="auto"',
        )
    setup = env_id if isinstance(env_id, EnvSetup) else None
    if isinstance(env_id, EnvSetup):
        env_kwargs = {**env_id.kwargs, **env_kwargs}
        env_id = env_id.id
    if not isinstance(env_id, str):
        make_one = _from_factory(env_id, backend, env_kwargs)
        return GymnasiumVectorEnv(name_of(env_id), make_one, num_envs, seed, first_env=first_env)
    if is_procgen(env_id):
        if setup is not None:
            setup.refuse_wrappers()
        return _make_procgen(env_id, num_envs, seed, backend, first_env, env_kwargs)
    missing: MusterError | None = None
    if backend != "envpool":
        try:
            make_one = env_maker(env_id, env_kwargs)
            make_one = make_one if setup is None else setup.maker(make_one)
            return GymnasiumVectorEnv(env_id, make_one, num_envs, seed, first_env=first_env)
        except (UnknownEnvError, MissingPackageError) as error:
            if backend == "gymnasium" or not _has_envpool():
                raise
            if isinstance(error, UnknownEnvError) and surely_not_in_envpool(env_id, gym.registry):
                raise
            missing = error

    from muster.envs.envpool import EnvPoolVectorEnv, import_envpool

    pooled = import_envpool().list_all_envs()
    if env_id in pooled:
        if setup is not None:
            setup.refuse_wrappers()
        return EnvPoolVectorEnv(env_id, num_envs, seed, env_kwargs, first_env)
    if isinstance(missing, MissingPackageError):
        raise missing
    raise _unknown(env_id, pooled if missing is None else [*gym.registry, *pooled])


def _make_procgen(
    env_id: str,
    num_envs: int,
    seed: int,
    backend: str,
    first_env: int,
    env_kwargs: dict[str, Any],
) -> VectorEnv:
    pool_id, levels = find_procgen(env_id)
    if backend == "gymnasium":
        raise OptionError(
            f"backend={backend!r} is not possible with {env_id!r}",
            "EnvPool alone runs Procgen's games",
            'backend="auto"',
        )
    from muster.envs.envpool import EnvPoolVectorEnv, import_envpool

    import_envpool()
    return EnvPoolVectorEnv(pool_id, num_envs, seed, {**levels, **env_kwargs}, first_env)


def is_remote(env_id: object) -> bool:
    """Whether this id is the address of a server, `remote:HOST:PORT`."""
    return isinstance(env_id, str) and env_id.startswith(REMOTE)


def env_maker(
    env_id: str | Callable[..., gym.Env[Any, Any]], env_kwargs: dict[str, Any]
) -> Callable[[], gym.Env[Any, Any]]:
    """Return a function that makes one bare environment of Gymnasium.

    Raises:
        UnknownEnvError: Gymnasium has no such id.
        MissingPackageError: A package has to be installed.
    """
    if not isinstance(env_id, str):
        return _from_factory(env_id, "gymnasium", env_kwargs)
    if is_remote(env_id):
        from muster.envs.remote import remote_maker

        return remote_maker(env_id, env_kwargs)
    spec = _find_spec(env_id)
    if spec is None:
        raise _unknown(env_id, gym.registry)
    return _maker(env_id, spec, env_kwargs)


def _find_spec(env_id: str) -> gym.envs.registration.EnvSpec | None:
    """Return Gymnasium's spec of this id, after importing the package that registers it."""
    module, _, name = env_id.rpartition(":")
    if module:
        _import_plugin(env_id, module, module, f"pip install the package that has {module!r}")
    if name not in gym.registry:
        for prefix, (plugins, package, extra) in _PLUGINS.items():
            if name.startswith(prefix):
                fix = f"pip install {shlex.quote(package)}" if extra is None else install(extra)
                for plugin in plugins:
                    _import_plugin(env_id, plugin, package, fix)
    return gym.registry.get(name)


def _import_plugin(env_id: str, module: str, package: str, fix: str) -> None:
    # Modules are also looked up in the current directory.
    sys.path.insert(0, here := os.getcwd())
    try:
        importlib.import_module(module)
    except Exception as error:  # the id may name any module, or none: "..:x"
        raise MissingPackageError(
            f"{env_id!r} needs the package {package!r}, which cannot be imported",
            one_line(error),
            fix,
        ) from error
    finally:
        sys.path.remove(here)


def _maker(
    env_id: str, spec: gym.envs.registration.EnvSpec, env_kwargs: dict[str, Any]
) -> Callable[[], gym.Env[Any, Any]]:
    spec = copy.deepcopy(spec)
    # GymnasiumVectorEnv does the work of these wrappers, once for all envs instead of in each.
    spec.disable_env_checker = True
    spec.order_enforce = False

    def make_one() -> gym.Env[Any, Any]:
        try:
            with warnings.catch_warnings():
                # Box2D warns while it is imported, and crashes where warnings are errors.
                warnings.filterwarnings("ignore", "builtin type", DeprecationWarning)
                env = gym.make(spec, **env_kwargs)
                return SmallSeeds(env) if spec.id.startswith(_OLD_GENERATOR) else env
        except gym.error.DependencyNotInstalled as error:
            line = re.search(r'pip install "?(gymnasium\[[\w-]+\])"?', str(error))
            extra = line.group(1) if line else "gymnasium[all]"
            fix = install("envs") if "box2d" in extra else f'pip install "{extra}"'
            why = re.split(r", (?:you can|run) ", str(error))[0]  # the rest is their install line
            raise MissingPackageError(
                f"{env_id!r} needs a package that is not installed", why, fix
            ) from error

    return make_one


def _from_factory(
    factory: object, backend: str, env_kwargs: dict[str, Any]
) -> Callable[[], gym.Env[Any, Any]]:
    if not callable(factory):
        raise OptionError(
            f"env_id={factory!r} is not possible",
            "it must be an id, or a function that returns a new gymnasium.Env",
            'make_envs("CartPole-v1")',
        )
    if backend == "envpool":
        raise OptionError(
            "backend='envpool' is not possible for a function",
            "EnvPool makes its own environments, from ids",
            'backend="auto"',
        )
    return lambda: factory(**env_kwargs)


def _unknown(env_id: str, known: Iterable[str]) -> UnknownEnvError:
    module, _, name = env_id.rpartition(":")
    near = nearest_id(name, known)
    if near and module:
        near = f"{module}:{near}"
    hint = f" Nearest: {near!r}" if near else ""
    return UnknownEnvError(
        f"No environment {env_id!r:.120}.{hint}",
        "no package that is installed has registered this id",
        f"make_envs({near!r})" if near else "package:Id-v0 as the id, if a package has it",
        near,
    )


def nearest_id(env_id: str, known: Iterable[str]) -> str | None:
    """Return the most similar known id: the newest version of the most similar name."""
    by_name: dict[str, list[str]] = {}
    for each in known:
        by_name.setdefault(_name(each), []).append(each)
    names = difflib.get_close_matches(_name(env_id), by_name, n=1, cutoff=_ALIKE)
    return max(by_name[names[0]], key=_version) if names else None


def _name(env_id: str) -> str:
    return re.sub(r"-v\d+$", "", env_id).lower()


def _version(env_id: str) -> int:
    found = re.search(r"-v(\d+)$", env_id)
    return int(found.group(1)) if found else -1


def _has_envpool() -> bool:
    return importlib.util.find_spec("envpool") is not None


def _whole_number(name: str, value: object, least: int | None, most: int | None) -> int:
    """Return an argument that is an integer in a range, or raise OptionError."""
    span = "an integer" if least is None else f"an integer from {least} to {most}"
    try:
        # A bool is an integer to Python, but a mistake here.
        number = operator.index(value) if not isinstance(value, bool) else None  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is not None and (least is None or most is None or least <= number <= most):
        return number
    raise OptionError(f"{name}={value!r} is not possible", f"it is {span}", f"{name}=1")
