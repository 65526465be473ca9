"""Options that change an environment: `--wrapper module:Wrapper`, `--env-kwargs key=value`.

    wrapper      a gymnasium.Wrapper, or a function that wraps an environment; first is innermost
    env_kwargs   arguments of gymnasium.make, each a string `key=value` whose value is YAML

Both identify a run: `config.yaml` records them, and resuming, playing and evaluating the run use
the same ones. Wrappers are sent to nodes in the same way as hooks.
"""

import json
from collections.abc import Mapping
from typing import Any, Protocol

from muster.envs.setup import EnvSetup, Wrap
from muster.errors import OptionError
from muster.recipes.own_functions import OwnFunctions
from muster.run.yaml_text import load

_OURS = ("seed", "num_envs", "backend", "first_env")


class ChangesEnv(Protocol):
    """Options that determine how an environment is made."""

    @property
    def wrapper(self) -> tuple[str, ...]:
        """Names of wrappers."""

    @property
    def env_kwargs(self) -> tuple[str, ...]:
        """Arguments, each `key=value`."""


def setup_of(env: str, options: ChangesEnv) -> EnvSetup | str:
    """Return the argument for `make_envs` that makes a run's environments; loads the wrappers."""
    return env_setup(env, parse_env_kwargs(options.env_kwargs), options.wrapper)


def env_setup(env: str, kwargs: Mapping[str, Any], wrapper: tuple[str, ...]) -> EnvSetup | str:
    """Return the argument for `make_envs`: the id alone, if it has no arguments and wrappers."""
    if not wrapper and not kwargs:
        return env
    known = WRAPPERS.known(wrapper)
    return EnvSetup(env, kwargs, tuple((name, known[name]) for name in wrapper))


def texts_of_kwargs(given: Any) -> Any:
    """Convert a dict of arguments to strings `key=value`; return anything else unchanged."""
    if not isinstance(given, Mapping):
        return given
    return tuple(_text(key, value) for key, value in given.items())


def parse_env_kwargs(texts: Any, option: str = "env_kwargs") -> dict[str, Any]:
    """Return the arguments by name.

    Args:
        texts: Strings `key=value`.
        option: The option that they come from, for messages.

    Raises:
        OptionError: A string is not `key=value`, or muster itself sets this argument.
    """
    if not isinstance(texts, tuple | list):
        raise _unreadable(texts, option)
    found: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=") if isinstance(text, str) else ("", "", "")
        if not equals or not key.isidentifier():
            raise _unreadable(text, option)
        if key in _OURS:
            raise OptionError(
                f"{option}={text!r:.80} is not possible",
                f"muster itself sets the {key} of environments",
                f"{key}=..., as an option of the run" if key in ("seed", "num_envs") else "none",
            )
        try:
            found[key] = load(f"value: {value}\n")["value"]
        except OptionError as error:
            raise _unreadable(text, option) from error
    return found


def _text(key: Any, value: Any) -> str:
    try:
        written = json.dumps(value)  # JSON on one line is also YAML
        if load(f"value: {written}\n")["value"] != value:
            raise ValueError(f"{value!r:.80} would be read back as a different value")
    except (TypeError, ValueError) as error:  # an OptionError is a ValueError
        raise OptionError(
            f"env_kwargs={{{key!r}: {value!r:.80}}} is not possible",
            "values are numbers, texts, booleans and lists of these: a run's file holds them",
            "register a function as env, which makes the environment with the value",
        ) from error
    return f"{key}={written}"


def _unreadable(text: object, option: str) -> OptionError:
    return OptionError(
        f"{option}={text!r:.80} is not possible",
        "arguments of the environment are key=value, and the value is a number, a word or YAML",
        f"--{option.replace('_', '-')} gravity=9.8 continuous=true",
    )


def _checked(name: str, wrapper: Any) -> Wrap:
    if not callable(wrapper):
        raise OptionError(
            f"the wrapper {name!r:.120} is not possible",
            f"a wrapper is a class or function of an environment, and this is {wrapper!r:.120}",
            "class MyWrapper(gymnasium.Wrapper): ...",
        )
    found: Wrap = wrapper
    return found


WRAPPERS: OwnFunctions[Wrap] = OwnFunctions(
    "wrapper", "wrapper", "a class or function of an environment, or its module and name", _checked
)
"""The wrappers that this process knows."""
