"""`EnvSetup`: an environment with the user's arguments and wrappers; accepted in place of an id.

id, kwargs -> gymnasium.make(id, **kwargs) -> the first wrapper -> the next one -> ... -> the env
"""

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym

from muster.envs.errors import brief, one_line
from muster.errors import MusterError, OptionError, raised_at
from muster.spelling import nearest

OneEnv = gym.Env[Any, Any]
Wrap = Callable[[OneEnv], OneEnv]


@dataclass(frozen=True)
class EnvSetup:
    """An environment with the user's own arguments and wrappers."""

    id: str
    """The id, as for `make_envs`."""
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Arguments for `gymnasium.make`, or EnvPool."""
    wrappers: tuple[tuple[str, Wrap], ...] = ()
    """Name and wrapper: a wrapper class, or a function of an environment. The first one is
    innermost, and a wrapper may occur twice."""

    def maker(self, make_one: Callable[[], OneEnv]) -> Callable[[], OneEnv]:
        """Return a function that makes one such environment; `make_one` makes the bare one.

        It raises OptionError for an unknown argument, or a wrapper that does not fit.
        """

        def make() -> OneEnv:
            try:
                env = make_one()
            except TypeError as error:
                raise self._unknown_argument(error) or error from error
            for name, wrap in self.wrappers:
                env = self._wrapped(name, wrap, env)
            return env

        return make

    def refuse_wrappers(self) -> None:
        """Raise OptionError if there are wrappers, for backends that support none."""
        if self.wrappers:
            raise OptionError(
                f"wrapper={self.wrappers[0][0]!r:.80} is not possible with EnvPool",
                "EnvPool runs its own environments in C++, and a wrapper is Python code around one "
                "environment",
                "backend=gymnasium, if gymnasium has the environment",
            )

    def _unknown_argument(self, error: TypeError) -> OptionError | None:
        found = re.search(r"unexpected keyword argument '(\w+)'", str(error))
        if found is None or found[1] not in self.kwargs:
            return None
        spec = gym.registry.get(self.id.rpartition(":")[2])
        entry: Any = None if spec is None else spec.entry_point
        if isinstance(entry, str):
            entry = gym.envs.registration.load_env_creator(entry)
        known = [] if entry is None else list(inspect.signature(entry).parameters)
        near = nearest(found[1], known)
        return OptionError(
            f"{self.id!r:.80} takes no argument {found[1]!r}",
            f"its arguments are {', '.join(known) or 'not known'}"[:200],
            f"env_kwargs={near}={self.kwargs[found[1]]}" if near else "leave env_kwargs out",
        )

    def _wrapped(self, name: str, wrap: Wrap, env: OneEnv) -> OneEnv:
        try:
            made = wrap(env)
        except MusterError:
            raise
        except Exception as error:
            raise OptionError(
                f"the wrapper {name!r:.80} cannot wrap {self.id!r:.80}",
                f"{one_line(error)}, raised in {raised_at(error)}",
                "a class or function that is called with the environment alone",
            ) from error
        if not isinstance(made, gym.Env):
            raise OptionError(
                f"the wrapper {name!r:.80} made {brief(made)}, which is not an environment",
                "a wrapper is called with an environment, and returns one",
                "class MyWrapper(gymnasium.Wrapper): ...",
            )
        return made
