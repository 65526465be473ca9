"""`VectorEnv`: several environments behind one interface, independent of the backend.

    actions -> check -> the backend steps the envs -> check -> reset ended envs -> commit -> arrays

An env is reset in the same step: the row of an env that ended is the first observation of its next
episode, and the true last observation is in `info["final_obs"]`. A step counts only if all of it
succeeded: after an error the episode numbers, returns and state are those before the step.
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
from muster.envs.step_metrics import MetricSums
from muster.errors import OptionError
from muster.seeding import numbered_seeds


class Episode(NamedTuple):
    """An episode that ended."""

    env: int
    """Index of the environment."""
    number: int
    """How many episodes this environment had begun before this one."""
    return_: float
    """Sum of the rewards, in float64."""
    length: int
    """Environment steps."""


class Books(NamedTuple):
    """The running episodes: one value for each env."""

    episodes: list[int]
    """Numbers of the episodes."""
    returns: Sequence[float]
    """Sum of the rewards so far, in float64."""
    lengths: Sequence[int]
    """Steps so far."""


class StepInfo(TypedDict):
    """What `VectorEnv.step` returns besides the arrays."""

    final_obs: Observation
    """Like obs; rows of envs that ended hold the true last observation, others are undefined."""
    episodes: list[Episode]
    """The episodes that ended in this step, by env index."""


StepResult = tuple[Observation, NDArray[np.float32], NDArray[np.bool_], NDArray[np.bool_], StepInfo]


def true_next_obs(obs: Observation, ended: NDArray[np.bool_], info: StepInfo) -> Observation:
    """Return the observations that the actions of a step led to, for bootstrapping values.

    Args:
        obs: From the same step.
        ended: `terminated | truncated` of the same step.
        info: From the same step.

    Returns:
        `obs` itself if no episode ended; otherwise a copy, with the last observations of ended
        episodes.
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
        num_envs: The number of environments.
        seed: The source of every random number in them.
        first_env: The number of env 0 among all envs of this seed, which may be spread over
            processes.
        backend: What runs them: "gymnasium" or "envpool".
        single_observation_space: The space of one row of an observation (floats are float32).
        single_action_space: The space of one action (discrete actions count from 0).
        env_action_space: The environment's own space of one action.
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
        """A copy of the present observation, to continue from after `load_state_dict`."""
        self._require_ready("obs")
        copy: Observation = self._observations.copy(self._obs)
        return copy

    @abstractmethod
    def reset(self) -> Observation:
        """Begin the next episode in every env, in any state, and return the first observation.

        Returns:
            An array [N, ...], or a dict of such arrays for a Dict space. The caller owns it.
        """

    @abstractmethod
    def step(self, actions: Any, out: Observation | None = None) -> StepResult:
        """Step every env, and reset the envs whose episode ended.

        Args:
            actions: One for each env: [N] integers, or [N, ...].
            out: Where to write the observation; default: a new array.

        Returns:
            obs [N, ...], reward float32 [N], terminated bool [N], truncated bool [N], info. The
            caller owns all arrays.

        Raises:
            EnvError: An env raised, or a value is invalid. The step did not happen.
        """

    @abstractmethod
    def render(self) -> Any:
        """Return an image of env 0, uint8 [H, W, 3]; needs `render_mode="rgb_array"`."""

    @abstractmethod
    def books(self) -> Books:
        """Return numbers, returns and lengths of the running episodes."""

    @abstractmethod
    def actions(self) -> list[Array]:
        """Return the actions of each running episode so far; empty arrays where unknown."""

    def take_metrics(self, first: int = 0, stop: int | None = None) -> MetricSums:
        """Return the sums of `info["metrics"]` and `info["is_success"]` since the last call.

        Args:
            first: The first of the envs to take them from.
            stop: The env after the last one; None for all that follow.
        """
        return {}

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Return the state of the envs after the last successful step: plain values and arrays."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state of other envs of the same id, number and seed.

        Episodes that cannot be restored to the exact step are restarted under their next number,
        and a MusterWarning names them.

        Raises:
            OptionError: The state does not belong to such envs.
        """

    @abstractmethod
    def close(self) -> None:
        """Release the envs. A second call does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def episode_seed(self, env: int, number: int) -> int:
        """Return an episode's seed, derived from "env", the env's number, "episode", `number`."""
        return self._seeds[env](number)

    def in_env_numbers(self, actions: Array) -> Array:
        """Convert the policy's actions [N, ...] to the environment's own numbering."""
        return self._actions.in_env_numbers(actions)

    def _require_ready(self, call: str) -> None:
        if self._unready is not None:
            raise EnvError(
                f"{call} of {self.env_id!r} is not possible now",
                self._unready,
                "obs = envs.reset(), or envs.load_state_dict(envs.state_dict()) to continue",
                field=call,
            )

    @abstractmethod
    def _running_step(self, env: int) -> int:
        """Return the number, from 1, of the step that env `env` is about to do in its episode."""

    def _refuse(self, value: RefusedValue, env: int, number: int, step: int) -> NoReturn:
        """Raise the EnvError for a rejected value; env < 0 means all envs."""
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
        """Raise the EnvError for a rejected value of the current step."""
        env = value.index
        if env < 0:
            self._refuse(value, env, 0, 0)
        self._refuse(value, env, self._numbers[env], self._running_step(env))

    def _place(self, env: int, number: int, step: int, seed: int | None) -> str:
        if env < 0:
            return f"of {self.env_id!r}"
        return f"of env {env} of {self.env_id!r} (episode {number}, step {step}, seed {seed})"

    def _head(self) -> dict[str, Any]:
        """Return the part of a state that all backends share: identity and position of the envs."""
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
        """Raise OptionError unless a state belongs to envs like these."""
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
        """Raise OptionError unless this part of a state is an array with one value for each env."""
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
