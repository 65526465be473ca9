"""`VectorEnv`: several environments behind one face, whatever runs them.

    actions -> check -> the backend steps the envs -> check -> reset what ended -> commit -> arrays

Reset is in the same step: the row of an env that ended is the first observation of its next
episode, and the true last one is in `info["final_obs"]`. A step counts only when all of it went
well: after an error the episode numbers, returns and the state are those before the step.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn, Self, TypedDict

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from muster.envs.actions import action_rows
from muster.envs.errors import EnvError, RefusedValue
from muster.envs.observations import Array, Observation, observation_rows
from muster.errors import OptionError
from muster.seeding import numbered_seeds


class Episode(NamedTuple):
    """An episode that ended."""

    env: int
    """Index of the environment."""
    number: int
    """How many episodes this environment had begun before."""
    return_: float
    """Sum of the rewards, in float64."""
    length: int
    """Environment steps."""


class Books(NamedTuple):
    """What is known of the running episodes: a value for each env."""

    episodes: list[int]
    """Their numbers."""
    returns: Sequence[float]
    """Sum of the rewards so far, in float64."""
    lengths: Sequence[int]
    """Steps so far."""


class StepInfo(TypedDict):
    """What `VectorEnv.step` says beside the arrays."""

    final_obs: Observation
    """Like obs; the rows of envs that ended hold the true last observation, others mean nothing."""
    episodes: list[Episode]
    """The episodes that ended in this step, by env index."""


StepResult = tuple[Observation, NDArray[np.float32], NDArray[np.bool_], NDArray[np.bool_], StepInfo]


def true_next_obs(obs: Observation, ended: NDArray[np.bool_], info: StepInfo) -> Observation:
    """Return what the actions of a step led to: what a value is bootstrapped from.

    Args:
        obs: From the same step.
        ended: `terminated | truncated` of the same step.
        info: From the same step.

    Returns:
        `obs` itself if no episode ended; else a copy, with the last observations where one did.
    """
    if not ended.any():
        return obs
    final: Any = info["final_obs"]
    if isinstance(obs, dict):
        return {name: _with_rows(part, ended, final[name]) for name, part in obs.items()}
    return _with_rows(obs, ended, final)


def _with_rows(obs: Array, ended: NDArray[np.bool_], final: Array) -> Array:
    result = obs.copy()
    result[ended] = final[ended]
    return result


class VectorEnv(ABC):
    """Several environments of one kind. Made by `make_envs`; used from one thread.

    Attributes:
        env_id: The id they were made from, or the name of the factory.
        num_envs: How many there are.
        seed: Every random number in them comes from this.
        first_env: The number of env 0 among all envs of this seed, which others may have.
        backend: What runs them: "gymnasium" or "envpool".
        single_observation_space: What one row of an observation is in (floats are float32).
        single_action_space: What one action is in (discrete actions count from 0).
        env_action_space: What one action is in to the environment itself.
    """

    backend: str

    def __init__(
        self,
        env_id: str,
        num_envs: int,
        seed: int,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        checks: bool = True,
        first_env: int = 0,
    ) -> None:
        self.env_id = env_id
        self.num_envs = num_envs
        self.seed = seed
        self.first_env = first_env
        numbers = range(first_env, first_env + num_envs)
        self._seeds = [numbered_seeds(seed, "env", number, "episode") for number in numbers]
        self._observations: Any = observation_rows(observation_space, num_envs, checks)
        self._actions = action_rows(action_space, num_envs, checks)
        self.single_observation_space: gym.Space[Any] = self._observations.space
        self.single_action_space: gym.Space[Any] = self._actions.space
        self.env_action_space = action_space
        self._checks = checks
        self._numbers = [-1] * num_envs  # of the running episodes
        self._obs: Any = None
        self._unready: str | None = "they were never reset"

    @property
    def obs(self) -> Observation:
        """The present observation, as an own copy: where to go on after `load_state_dict`."""
        self._require_ready("obs")
        copy: Observation = self._observations.copy(self._obs)
        return copy

    @abstractmethod
    def reset(self) -> Observation:
        """Begin the next episode in every env, whatever state it is in, and return what it shows.

        Returns:
            An array [N, ...], or a dict of such arrays if the space is a Dict: the caller's own.
        """

    @abstractmethod
    def step(self, actions: Any, out: Observation | None = None) -> StepResult:
        """Do one step in every env, and reset the envs whose episode ended with it.

        Args:
            actions: One for each env: [N] integers, or [N, ...].
            out: Where to write the observation; without it, a new array.

        Returns:
            obs [N, ...], reward float32 [N], terminated bool [N], truncated bool [N], info. All
            arrays are the caller's own.

        Raises:
            EnvError: an env raised, or a value is not what it must be. The step did not happen.
        """

    @abstractmethod
    def render(self) -> Any:
        """Return a picture of env 0, uint8 [H, W, 3], if made with `render_mode="rgb_array"`."""

    @abstractmethod
    def books(self) -> Books:
        """Return what is known of the running episodes."""

    @abstractmethod
    def actions(self) -> list[Array]:
        """Return the actions since each running episode began; none where they are not known."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Return where the envs are after the last step that went well: plain values and arrays."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to where other envs of the same id, number and seed were.

        Episodes that cannot be restored to the very step are restarted under their next number, and
        a MusterWarning says which.

        Raises:
            OptionError: the state is not one of such envs.
        """

    @abstractmethod
    def close(self) -> None:
        """Release the envs. Closing again changes nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def episode_seed(self, env: int, number: int) -> int:
        """Return an episode's seed, derived from "env", the env's number, "episode", `number`."""
        return self._seeds[env](number)

    def in_env_numbers(self, actions: Array) -> Array:
        """Return actions [N, ...] of the policy as the environment itself has them."""
        return self._actions.in_env_numbers(actions)

    def _require_ready(self, call: str) -> None:
        if self._unready is not None:
            raise EnvError(
                f"{call} of {self.env_id!r} is not possible now",
                self._unready,
                "obs = envs.reset(), or envs.load_state_dict(envs.state_dict()) to go on",
                field=call,
            )

    @abstractmethod
    def _running_step(self, env: int) -> int:
        """Return the number of the step that env `env` is about to do in its episode, from 1."""

    def _refuse(self, value: RefusedValue, env: int, number: int, step: int) -> NoReturn:
        """Raise the EnvError for a value that was refused; env < 0 if all are meant."""
        seed = self.episode_seed(env, number) if env >= 0 else None
        raise EnvError(
            f"{value.field} {self._place(env, number, step, seed)} {value.what}",
            value.why,
            value.fix,
            env=env if env >= 0 else None,
            episode=number if env >= 0 else None,
            step=step if env >= 0 else None,
            seed=seed,
            field=value.field,
        ) from None

    def _refuse_in_step(self, value: RefusedValue) -> NoReturn:
        """Raise the EnvError for a value in a row for each env, in the step that is being done."""
        env = value.index
        if env < 0:
            self._refuse(value, env, 0, 0)
        self._refuse(value, env, self._numbers[env], self._running_step(env))

    def _place(self, env: int, number: int, step: int, seed: int | None) -> str:
        if env < 0:
            return f"of {self.env_id!r}"
        return f"of env {env} of {self.env_id!r} (episode {number}, step {step}, seed {seed})"

    def _head(self) -> dict[str, Any]:
        """Return the part of a state that every backend has: whose it is, and where it is."""
        started = self._obs is not None
        return {
            "format": 1,
            "backend": self.backend,
            "env_id": self.env_id,
            "num_envs": self.num_envs,
            "seed": self.seed,
            "started": started,
            "episodes": np.array(self._numbers),
            "obs": self._observations.copy(self._obs) if started else None,
        }

    def _check_head(self, state: dict[str, Any]) -> None:
        """Raise OptionError unless a state is one of envs like these."""
        mine = self._head()
        for name in ("format", "backend", "env_id", "num_envs", "seed"):
            if state.get(name) != mine[name]:
                raise bad_state(
                    f"its {name} is {state.get(name)!r}, and these envs have {mine[name]!r}"
                )
        self._check_column(state, "episodes", "i")
        if state.get("started") and not self._observations.fits(state.get("obs"), self.num_envs):
            raise bad_state(f"its obs are not one observation in {self.single_observation_space}")

    def _check_column(self, state: dict[str, Any], name: str, kind: str) -> None:
        """Raise OptionError unless this part of a state is an array with a value for each env."""
        given = state.get(name)
        if (
            not isinstance(given, np.ndarray)
            or given.shape != (self.num_envs,)
            or given.dtype.kind != kind
        ):
            raise bad_state(f"its {name} are not one value for each env")


def bad_state(why: str) -> OptionError:
    """Return the error for a state that cannot be loaded."""
    return OptionError(
        "load_state_dict(state) is not possible",
        why,
        "make_envs with the arguments that the state was saved with",
    )
