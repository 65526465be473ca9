"""`GymnasiumVectorEnv`: `gymnasium.Env` objects, stepped one after the other in this process.

    actions -> every env.step -> stack, check -> env.reset(seed) where ended -> commit -> arrays

Not `gymnasium.vector`, because here every episode has its own reset seed, which makes it possible
to restore an episode: reset with the seed, apply the actions again. Errors name the env and its
episode.
"""

import operator
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from muster.envs.actions import ActionLog
from muster.envs.base import Books, Episode, StepResult, VectorEnv, bad_state
from muster.envs.errors import EnvError, RefusedValue, brief
from muster.envs.masks import FirstReset, InfoMask, mask_check
from muster.envs.observations import TOP_BYTES, Array, Observation
from muster.envs.rewards import real_number, refuse_infinite_rewards
from muster.envs.single import OneEnv, call_failed, close_quietly, make_env, require_same_spaces
from muster.envs.step_metrics import MetricSums, StepMetrics
from muster.errors import MusterWarning
from muster.framework.signals import is_signal_exit
from muster.seeding import numbered_seeds


class GymnasiumVectorEnv(VectorEnv):
    """Environments in this process, restored exactly if they depend only on seed and actions.

    Args:
        env_id: The name in messages.
        make_one: Makes one environment; called `num_envs` times.
        num_envs: The number of environments.
        seed: Seed of the run.
        checks: False only to measure the cost of the checks.
        first_env: The number of the first one among all envs of this seed.
    """

    backend = "gymnasium"

    def __init__(
        self,
        env_id: str,
        make_one: Callable[[], OneEnv],
        num_envs: int,
        seed: int,
        checks: bool = True,
        first_env: int = 0,
    ) -> None:
        self._envs: list[OneEnv] = []
        try:
            for index in range(num_envs):
                self._envs.append(make_env(env_id, make_one, index))
            first_seed = numbered_seeds(seed, "env", first_env, "episode")(0)
            self._first_reset = FirstReset(self._envs[0], first_seed)
            if self._first_reset.has_mask:
                self._envs = [InfoMask(env) for env in self._envs]
            first = self._envs[0]
            for index, env in enumerate(self._envs):
                require_same_spaces(env_id, first, env, index)
            super().__init__(
                env_id,
                num_envs,
                seed,
                first.observation_space,
                first.action_space,
                checks,
                first_env,
            )
            self._masks = mask_check(env_id, first.observation_space, first.action_space)
        except BaseException:
            for env in self._envs:
                close_quietly(env)
            raise
        self._steps = [env.step for env in self._envs]
        begins = [getattr(env, "begin_step", None) for env in self._envs]
        self._begins = [each for each in begins if each is not None]
        """What lets envs that run elsewhere compute at the same time (`RemoteEnv.begin_step`)."""
        self._log = ActionLog(self._actions, num_envs)
        self._returns = [0.0] * num_envs
        self._falses = (False,) * num_envs
        self._metrics = StepMetrics(env_id, num_envs)

    def reset(self) -> Observation:
        """See VectorEnv."""
        self._require_open()
        self._unready = "the last reset failed"
        numbers = [number + 1 for number in self._numbers]
        indices = list(range(self.num_envs))
        obs = self._reset(indices, numbers)
        self._numbers = numbers
        self._returns = [0.0] * self.num_envs
        for index in indices:
            self._log.restart(index)
        self._obs = obs
        self._unready = None
        return self.obs

    def step(self, actions: Any, out: Observation | None = None) -> StepResult:
        """See VectorEnv."""
        if self._unready is not None:
            self._require_ready("step()")
        try:
            chosen, for_envs = self._actions.check(actions)
        except RefusedValue as value:
            self._refuse_in_step(value)
        row = chosen.tobytes()  # now, because an env may change its action
        self._unready = "the last step failed, after some envs had done it and others had not"
        done: list[Any] = []
        try:
            if self._begins:
                for begin, action in zip(self._begins, for_envs, strict=True):
                    begin(action)
            for env_step, action in zip(self._steps, for_envs, strict=True):
                done.append(env_step(action))
        except (Exception, SystemExit) as error:  # an env that exits has failed
            env = len(done)
            self._raise_failure("step", error, env, self._numbers[env], self._running_step(env))
        try:
            raws, rewards, ends, cuts, infos = zip(*done, strict=True)
        except (ValueError, TypeError):
            self._refuse_wrong_tuples(done)
            raise

        try:
            told = any(infos)  # all that an env without infos pays for metrics
        except ValueError:  # an array, which no env should return here
            told = False
        try:
            returns, reward_row = self._add_rewards(rewards)
            obs = final = self._observations.stack(raws)
            terminated, truncated, ended = self._flags(ends, cuts)
            if self._masks is not None:
                self._masks.check(final, over=terminated)
        except RefusedValue as value:
            self._refuse_in_step(value)
        if ended:
            first = self._reset(ended, [self._numbers[env] + 1 for env in ended])
            obs = self._observations.copy(final)
            self._observations.put(obs, ended, first)

        # From here on nothing can fail: the step counts.
        self._log.append(row)
        self._returns = returns
        episodes = [self._finish(env) for env in ended] if ended else []
        self._obs = obs
        self._unready = None
        if told:
            self._metrics.note(infos, ended)
        theirs = self._observations.copy(obs, out)  # the caller may change its copy
        return (
            theirs,
            reward_row,
            terminated,
            truncated,
            {"final_obs": final if ended else theirs, "episodes": episodes},
        )

    def render(self) -> Any:
        """See VectorEnv."""
        return self._envs[0].render()

    def books(self) -> Books:
        """See VectorEnv."""
        lengths = [self._log.length(env) for env in range(self.num_envs)]
        return Books(list(self._numbers), list(self._returns), lengths)

    def actions(self) -> list[Array]:
        """See VectorEnv."""
        episodes = [self._log.episode(env) for env in range(self.num_envs)]
        return [self._no_actions() if each is None else each for each in episodes]

    def take_metrics(self, first: int = 0, stop: int | None = None) -> MetricSums:
        """See VectorEnv."""
        return self._metrics.take(first, self.num_envs if stop is None else stop)

    def state_dict(self) -> dict[str, Any]:
        """See VectorEnv. `actions` holds those of all running episodes, one env after the other."""
        episodes = [self._log.episode(env) for env in range(self.num_envs)]
        known = [actions for actions in episodes if actions is not None]
        return {
            **self._head(),
            "returns": np.array(self._returns, np.float64),
            "lengths": np.array([self._log.length(env) for env in range(self.num_envs)]),
            "kept": np.array([actions is not None for actions in episodes]),
            "actions": np.concatenate([*known, self._no_actions()]),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See VectorEnv."""
        self._require_open()
        self._check_head(state)
        episodes = self._saved_episodes(state)
        self._unready = "the last load_state_dict failed, after some envs were restored"
        numbers = state["episodes"].tolist()
        returns = state["returns"].tolist()
        obs = self._observations.copy(state["obs"]) if state["started"] else None
        for env in range(self.num_envs if state["started"] else 0):
            number = numbers[env]
            problem = self._restore(env, number, returns[env], episodes[env], obs)
            if problem is not None:
                warnings.warn(
                    f"env {env} of {self.env_id!r} begins episode {number + 1} instead of going "
                    f"on with episode {number}: {problem}",
                    MusterWarning,
                    stacklevel=2,
                )
                numbers[env], returns[env], episodes[env] = number + 1, 0.0, self._no_actions()
                self._observations.put(obs, [env], self._reset([env], [number + 1]))
        self._log.load([actions for actions in episodes if actions is not None])
        self._numbers, self._returns, self._obs = numbers, returns, obs
        self._unready = "they were never reset" if obs is None else None

    def close(self) -> None:
        """See VectorEnv."""
        envs, self._envs, self._steps = self._envs, [], []
        self._unready = "they are closed"
        failed: EnvError | None = None
        for index, env in enumerate(envs):
            try:
                env.close()
            except (Exception, SystemExit) as error:
                if is_signal_exit(error):
                    raise
                if failed is None:
                    failed = call_failed(self.env_id, "close", error, index)
                    failed.__cause__ = error
        if failed is not None:
            raise failed

    def _running_step(self, env: int) -> int:
        return self._log.length(env) + 1

    def _require_open(self) -> None:
        if not self._envs:
            self._require_ready("reset()")

    def _reset(self, indices: list[int], numbers: list[int]) -> Any:
        """Begin the episodes with these numbers in these envs and return their checked rows."""
        raws = []
        for env, number in zip(indices, numbers, strict=True):
            try:
                seed = self._seeds[env](number)
                if env == 0:
                    raw, _ = self._first_reset.take(self._envs[0], seed)
                else:
                    raw, _ = self._envs[env].reset(seed=seed)
            except (Exception, SystemExit) as error:
                self._raise_failure("reset", error, env, number, 0)
            raws.append(raw)
        try:
            rows = self._observations.stack(raws)
            if self._masks is not None:
                self._masks.check(rows)
            return rows
        except RefusedValue as value:
            self._refuse(value, indices[value.index], numbers[value.index], 0)

    def _add_rewards(self, rewards: Sequence[Any]) -> tuple[list[float], Array]:
        """Return the new returns of all envs, and the rewards as float32 [N]."""
        try:
            # Not operator.add: 0.0 + np.float32(1) is a float32, so returns would lose precision.
            returns = list(map(float.__add__, self._returns, rewards))
            try:
                sum(returns)
            except TypeError:  # an element is NotImplemented: its reward is neither float nor int
                exact = [real_number(env, reward) for env, reward in enumerate(rewards)]
                returns = list(map(operator.add, self._returns, exact))
            row = np.array(rewards, np.float32)
        except (OverflowError, RuntimeWarning):  # RuntimeWarning where warnings are errors
            refuse_infinite_rewards(rewards)
            raise
        if self._checks:
            # As in all_finite; a finite reward that is too large for float32 is Inf in the row.
            top = row.tobytes()[TOP_BYTES]
            if 0x7F in top or 0xFF in top:
                refuse_infinite_rewards(rewards)
        return returns, row

    def _flags(self, ends: Sequence[Any], cuts: Sequence[Any]) -> tuple[Array, Array, list[int]]:
        """Return terminated and truncated as bool [N], and which envs ended."""
        terminated, truncated = np.zeros(self.num_envs, bool), np.zeros(self.num_envs, bool)
        # Nearly always all of them are the object False, which this detects fastest.
        some_end = any(map(operator.is_not, ends, self._falses))
        some_cut = any(map(operator.is_not, cuts, self._falses))
        if some_end:
            terminated[:] = [_flag(env, "terminated", end) for env, end in enumerate(ends)]
        if some_cut:
            truncated[:] = [_flag(env, "truncated", cut) for env, cut in enumerate(cuts)]
        if not (some_end or some_cut):
            return terminated, truncated, []
        return terminated, truncated, np.flatnonzero(terminated | truncated).tolist()

    def _refuse_wrong_tuples(self, done: list[Any]) -> None:
        """Raise EnvError for the first env whose step did not return five values."""
        for env, result in enumerate(done):
            try:
                _, _, _, _, _ = result
            except Exception as error:
                self._raise_failure("step", error, env, self._numbers[env], self._running_step(env))

    def _finish(self, env: int) -> Episode:
        """Return the finished episode, and start counting the next one."""
        number = self._numbers[env]
        done = Episode(env, number, float(self._returns[env]), self._log.length(env))
        self._numbers[env] = number + 1
        self._returns[env] = 0.0
        self._log.restart(env)
        return done

    def _raise_failure(
        self, call: str, error: BaseException, env: int, number: int, step: int
    ) -> NoReturn:
        if is_signal_exit(error):
            raise error
        seed = self.episode_seed(env, number)
        raise call_failed(self.env_id, call, error, env, number, step, seed) from error

    def _no_actions(self) -> Array:
        return np.zeros((0, *self._actions.shape), self._actions.dtype)

    def _saved_episodes(self, state: dict[str, Any]) -> list[Array | None]:
        """Return the actions of a state's running episodes; None for those that were too long."""
        for name, kind in (("returns", "f"), ("lengths", "i"), ("kept", "b")):
            self._check_column(state, name, kind)
        lengths, kept, actions = state["lengths"], state["kept"], state.get("actions")
        empty = self._no_actions()
        if (
            not isinstance(actions, np.ndarray)
            or actions.dtype != empty.dtype
            or (lengths < 0).any()
            or actions.shape != (int(lengths[kept].sum()), *empty.shape[1:])
        ):
            raise bad_state("its actions do not fit its lengths, or the action space")
        try:
            self._actions.check_values(actions)
        except RefusedValue as value:
            raise bad_state(f"one of its actions {value.what}; {value.why}") from None
        ends = np.cumsum(np.where(kept, lengths, 0))
        return [
            actions[end - length : end] if keep else None
            for end, length, keep in zip(ends, lengths, kept, strict=True)
        ]

    def _restore(
        self, env: int, number: int, return_: float, actions: Array | None, obs: Any
    ) -> str | None:
        """Restore the position of an env; return None, or the reason why it differs."""
        if actions is None:
            return "the episode is longer than the actions that muster keeps"
        row = self._reset([env], [number])
        total, count = 0.0, 0
        for action in self._actions.for_envs(actions):
            count += 1
            try:
                raw, reward, terminated, truncated, _ = self._steps[env](action)
                total += float(reward)
            except (Exception, SystemExit) as error:
                self._raise_failure("step", error, env, number, count)
            if terminated or truncated:
                return f"repeated, the episode ended after {count} of {len(actions)} steps"
        if count:
            try:
                row = self._observations.stack([raw])
            except RefusedValue as value:
                self._refuse(value, env, number, count)
        if not self._observations.same_bits(row, obs, env):
            return "the same reset seed and actions led to another observation"
        if total != return_:
            return "the same reset seed and actions led to another return"
        return None


def _flag(env: int, field: str, value: Any) -> bool:
    if value is True or value is False:
        return bool(value)
    if np.ndim(value) == 0 and np.asarray(value).dtype.kind in "biu" and value in (0, 1):
        return bool(value)
    why = "it must be True or False"
    raise RefusedValue(env, field, f"is {brief(value)}", why, f"return bool({field})")
