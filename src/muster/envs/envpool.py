"""`EnvPoolVectorEnv`: EnvPool's C++ environments, which step on their own threads.

    actions -> pool.step(all) -> check -> pool.step(only ended envs) -> commit -> arrays

EnvPool resets in the next step: the step after an end ignores its action and returns the first
observation. So exactly the envs that ended are stepped once more immediately, and their previous
observation is the final one. EnvPool seeds an env when it is made, not when it is reset: the pool's
own stream of random numbers decides all later episodes, and an env cannot be restored to the middle
of one.
"""

import warnings
from typing import Any

import numpy as np

from muster.container import whole_cores
from muster.envs.base import Books, Episode, StepResult, VectorEnv
from muster.envs.errors import (
    INSTALL_QT,
    EnvError,
    MissingPackageError,
    RefusedValue,
    one_line,
)
from muster.envs.observations import Array, Observation, all_finite
from muster.envs.rewards import refuse_infinite_rewards
from muster.errors import MusterWarning, OptionError
from muster.framework.node import current_node
from muster.installs import install
from muster.seeding import derive_seed

_OURS = ("batch_size", "env_seed", "env_type", "gym_reset_return_info")


def import_envpool() -> Any:
    """Import EnvPool, which takes about a second and is needed only here.

    Raises:
        MissingPackageError: EnvPool is not installed.
    """
    try:
        import envpool  # type: ignore[import-untyped, unused-ignore]
    except ImportError as error:
        raise MissingPackageError(
            "backend='envpool' needs EnvPool, which cannot be imported",
            one_line(error),
            install("envs"),
        ) from error
    return envpool


class EnvPoolVectorEnv(VectorEnv):
    """Environments of EnvPool; all of them step together.

    Args:
        env_id: An id of EnvPool.
        num_envs: The number of environments.
        seed: Seed of the run.
        env_kwargs: For `envpool.make`, such as `num_threads` or `max_episode_steps`.
    """

    backend = "envpool"

    def __init__(
        self,
        env_id: str,
        num_envs: int,
        seed: int,
        env_kwargs: dict[str, Any],
        first_env: int = 0,
    ) -> None:
        for name in _OURS:
            if name in env_kwargs:
                raise OptionError(
                    f"{name}={env_kwargs[name]!r} is not possible",
                    f"make_envs sets EnvPool's {name} itself; all envs are stepped at once",
                    f"make_envs({env_id!r}, num_envs=8, seed=0)",
                )
        self._pool: Any = None
        self._env_kwargs = {"num_threads": _threads(num_envs), **env_kwargs}
        self.env_id, self.num_envs, self.seed = env_id, num_envs, seed
        self.first_env = first_env
        pool = self._make_pool([0] * num_envs)
        spaces = pool.observation_space, pool.action_space
        super().__init__(env_id, num_envs, seed, *spaces, first_env=first_env)
        self._pool = pool
        self._all = np.arange(num_envs, dtype=np.int32)
        self._lengths = np.zeros(num_envs, np.int64)
        self._returns = np.zeros(num_envs)
        # The action for an env that only has to reset; EnvPool ignores it.
        idle = np.zeros((num_envs, *self._actions.shape), self._actions.dtype)
        self._idle = self._actions.in_env_numbers(idle)

    def reset(self) -> Observation:
        """See VectorEnv."""
        self._require_open()
        self._unready = "the last reset failed"
        numbers = [number + 1 for number in self._numbers]
        obs = self._check_obs(self._call("reset", self._pool.reset)[0], self._all, numbers, 0)
        self._begin(numbers, obs)
        return self.obs

    def step(self, actions: Any, out: Observation | None = None) -> StepResult:
        """See VectorEnv."""
        self._require_ready("step()")
        try:
            chosen = self._actions.in_env_numbers(self._actions.check(actions)[0])
        except RefusedValue as value:
            self._refuse_in_step(value)
        self._unready = "the last step failed"
        raw, rewards, terminated, truncated, info = self._call("step", self._pool.step, chosen)
        self._check_order(info, self._all)
        rewards = rewards.astype(np.float32, copy=False)
        if not all_finite(rewards):
            try:
                refuse_infinite_rewards(rewards)
            except RefusedValue as value:
                self._refuse_in_step(value)
        final = obs = self._check_obs(raw, self._all, self._numbers, None)
        ended = np.flatnonzero(terminated | truncated)
        if len(ended):
            numbers = [number + 1 for number in self._numbers]
            # Not pool.reset(ended): that would also reset a game that continues after a lost life.
            ids = ended.astype(np.int32)
            raw, _, _, _, info = self._call("step", self._pool.step, self._idle[ended], ids)
            self._check_order(info, ids)
            first = self._check_obs(raw, ids, numbers, 0)
            obs = self._observations.copy(final)
            self._observations.put(obs, ended.tolist(), first)

        # From here on nothing can fail: the step counts.
        self._lengths += 1
        self._returns += rewards
        episodes = [self._finish(env) for env in ended.tolist()]
        self._obs = obs
        self._unready = None
        theirs = self._observations.copy(obs, out)  # the caller may change its copy
        return (
            theirs,
            rewards,
            terminated.astype(np.bool_),
            truncated.astype(np.bool_),
            {"final_obs": final if episodes else theirs, "episodes": episodes},
        )

    def render(self) -> Any:
        """See VectorEnv."""
        return self._call("render", self._pool.render)[0]

    def books(self) -> Books:
        """See VectorEnv."""
        return Books(list(self._numbers), self._returns.tolist(), self._lengths.tolist())

    def actions(self) -> list[Array]:
        """See VectorEnv. EnvPool cannot restore episodes, so it keeps no actions."""
        return [np.zeros((0, *self._actions.shape), self._actions.dtype)] * self.num_envs

    def state_dict(self) -> dict[str, Any]:
        """See VectorEnv."""
        return {**self._head(), "lengths": self._lengths.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See VectorEnv. All running episodes restart, in a new pool."""
        self._require_open()
        self._check_head(state)
        numbers = state["episodes"].tolist()
        if not state["started"]:
            self._numbers, self._obs = numbers, None
            self._unready = "they were never reset"
            return
        warnings.warn(
            f"the {self.num_envs} running episodes of {self.env_id!r} restart: "
            "EnvPool cannot put an env back into the middle of an episode",
            MusterWarning,
            stacklevel=2,
        )
        self._unready = "the last load_state_dict failed"
        numbers = [number + 1 for number in numbers]
        self._pool = self._make_pool(numbers)
        self._begin(
            numbers,
            self._check_obs(self._call("reset", self._pool.reset)[0], self._all, numbers, 0),
        )

    def close(self) -> None:
        """See VectorEnv."""
        pool, self._pool = self._pool, None
        self._unready = "they are closed"
        if pool is not None:
            self._call("close", pool.close)

    def _running_step(self, env: int) -> int:
        return int(self._lengths[env]) + 1

    def _require_open(self) -> None:
        if self._pool is None:
            self._require_ready("reset()")

    def _make_pool(self, numbers: list[int]) -> Any:
        """Make envs whose first episodes have these numbers, and the corresponding seeds."""
        envpool = import_envpool()
        seeds = [
            derive_seed(self.seed, "env", self.first_env + env, "episode", number) % 2**31
            for env, number in enumerate(numbers)
        ]
        with warnings.catch_warnings():
            # EnvPool's bounds are float64, and Gymnasium warns about it for each space that it
            # derives from them, which happens on first access.
            warnings.simplefilter("ignore")
            pool = self._call(
                "init",
                lambda: envpool.make(
                    self.env_id,
                    env_type="gymnasium",
                    num_envs=self.num_envs,
                    seed=seeds,
                    **self._env_kwargs,
                ),
            )
            _ = pool.observation_space, pool.action_space
        players = pool.config.get("max_num_players", 1)
        if players != 1:
            raise EnvError(
                f"{self.env_id!r} has {players} players, which is not supported",
                "a VectorEnv has one row for each env",
                "use an env with one player",
                field="init",
            )
        return pool

    def _call(self, name: str, fn: Any, *args: Any) -> Any:
        try:
            return fn(*args)
        except Exception as error:
            if isinstance(error, ImportError) and "Qt 5" in str(error):
                raise MissingPackageError(
                    f"{self.env_id!r} needs libraries of the system that are not installed",
                    one_line(error),
                    INSTALL_QT,
                ) from error
            raise EnvError(
                f"{name} of {self.env_id!r} failed in EnvPool: {one_line(error)}",
                "EnvPool itself raised this exception, for all envs together",
                f"make_envs({self.env_id!r}, backend='gymnasium') names the failing env, if "
                "gymnasium has this id",
                field=name,
            ) from error

    def _check_order(self, info: dict[str, Any], ids: Array) -> None:
        if not np.array_equal(info["env_id"], ids):
            raise EnvError(
                f"EnvPool returned rows of {self.env_id!r} for envs {info['env_id']}, not {ids}",
                "rows in another order would be taken for those of other envs",
                "pip install envpool==1.2.5",
                field="env_id",
            )

    def _check_obs(self, raw: Any, ids: Array, numbers: list[int], step: int | None) -> Any:
        try:
            return self._observations.check(raw)
        except RefusedValue as value:
            env = int(ids[value.index])
            at = self._running_step(env) if step is None else step
            self._refuse(value, env, numbers[env], at)

    def _begin(self, numbers: list[int], obs: Any) -> None:
        self._numbers = numbers
        self._returns[:] = 0.0
        self._lengths[:] = 0
        self._obs = obs
        self._unready = None

    def _finish(self, env: int) -> Episode:
        """Return the finished episode, and start counting the next one."""
        number = self._numbers[env]
        done = Episode(env, number, float(self._returns[env]), int(self._lengths[env]))
        self._numbers[env] = number + 1
        self._returns[env] = 0.0
        self._lengths[env] = 0
        return done


def _threads(num_envs: int) -> int:
    """Return this process's share of the cores, because EnvPool would use all in every node."""
    node = current_node()
    nodes = 1 if node is None else node.place.size
    return max(1, min(num_envs, whole_cores() // nodes))
