"""A user's own code that nodes cannot import: it is sent to the user's processes by value.

Only the process of a script or notebook knows the environment or algorithm that it registered, or
the network that it registered or passed. Nodes receive such code with their job, through file
descriptors inherited from the process that starts them (on Ray, over Ray's own transport), and
register it in turn. It is never read from a file, nor from a socket that others can reach.
"""

import sys
from dataclasses import dataclass, replace
from typing import Any

import cloudpickle
import gymnasium as gym
from gymnasium.envs.registration import EnvSpec

from muster.errors import OptionError
from muster.nets import registry
from muster.recipes import algorithms
from muster.recipes.env_options import WRAPPERS
from muster.recipes.hooks import HOOKS
from muster.recipes.own_modules import modules_here

_MAIN = "__main__"


@dataclass(frozen=True)
class OwnCode:
    """Code that nodes have to know; pickled by value if it is from the main module."""

    envs: bytes | None
    """The registered specifications of the environments; None if Gymnasium has none of them."""
    model: bytes | None
    """The function that builds the network; None if nodes know the network by name."""
    algorithm: bytes | None
    """The algorithm; None if it is built in."""
    hooks: bytes | None
    """The user's middleware, by name; None if there is none."""
    wrappers: bytes | None
    """Wrappers around the environment, by name; None if there are none."""

    @classmethod
    def of(
        cls,
        algo: str,
        envs: tuple[str, ...],
        model: str | None,
        use: tuple[str, ...],
        wrapper: tuple[str, ...] = (),
    ) -> "OwnCode":
        """Return the code that nodes need for these names.

        Raises:
            OptionError: Some of the code cannot be sent to another process.
        """
        # Nodes import the module of `module:Id`, which registers the environment: not sent as well.
        specs = [_sendable(gym.registry[env]) for env in envs if env in gym.registry]
        factory = None
        if model is not None and not registry.is_built_in(model):
            factory = registry.get_model(model)
        algorithm = algorithms.own_algorithm(algo)
        return cls(
            pickled(f"the environment {envs[0]!r:.80}", specs) if specs else None,
            None if factory is None else pickled(f"the model {model!r:.80}", factory),
            None if algorithm is None else pickled(f"the algorithm {algo!r:.80}", algorithm),
            pickled(f"the hook {use[0]!r:.80}", HOOKS.known(use)) if use else None,
            pickled(f"the wrapper {wrapper[0]!r:.80}", WRAPPERS.known(wrapper))
            if wrapper
            else None,
        )

    def install(self, algo: str, model: str | None) -> None:
        """Register the code in this process, a node."""
        with modules_here():
            self._install(algo, model)

    def _install(self, algo: str, model: str | None) -> None:
        if self.algorithm is not None:
            algorithms.install(algo, cloudpickle.loads(self.algorithm))
        if self.hooks is not None:
            HOOKS.install(cloudpickle.loads(self.hooks))
        if self.wrappers is not None:
            WRAPPERS.install(cloudpickle.loads(self.wrappers))
        if self.envs is not None:
            specs: list[EnvSpec] = cloudpickle.loads(self.envs)
            for spec in specs:
                gym.registry.setdefault(spec.id, spec)
        if self.model is not None and model is not None and not registry.is_registered(model):
            registry.register_model(model, cloudpickle.loads(self.model))


def _sendable(spec: EnvSpec) -> EnvSpec:
    """Return a specification that nodes can use: their `__main__` is another module."""
    entry = spec.entry_point
    if not isinstance(entry, str) or not entry.startswith(f"{_MAIN}:"):
        return spec
    found: Any = sys.modules[_MAIN]
    for part in entry.partition(":")[2].split("."):
        found = getattr(found, part)
    return replace(spec, entry_point=found)


def pickled(what: str, value: Any, alone: str = "workers=0") -> bytes:
    """Pickle a value for the user's own processes.

    Args:
        what: Describes the value, for the message.
        value: The value to send.
        alone: The option that makes sending unnecessary.

    Raises:
        OptionError: The value contains something that cannot be sent to another process.
    """
    try:
        data: bytes = cloudpickle.dumps(value)
    except Exception as error:
        raise OptionError(
            f"{what} cannot be sent to workers",
            f"{type(error).__name__}: {' '.join(str(error).split())}",
            f"{alone}, or put it into a separate module that workers can import",
        ) from error
    return data
