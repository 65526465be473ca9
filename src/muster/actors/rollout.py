"""`RolloutWorker`: acts in its own environments and sends the experience directly to the replay.

newest weights -> fragment of steps -> replay (waits while there is no room) -> newest weights ...
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import gymnasium as gym
import numpy as np

from muster.actors.block import Block
from muster.actors.calls import Call
from muster.actors.parameters import ParameterServer
from muster.actors.replay import ReplayBuffer
from muster.envs import make_envs
from muster.envs.make import env_maker
from muster.errors import OptionError
from muster.seeding import derive_seed
from muster.workers import Collector

LEAST_FRAGMENT = 50
"""Minimum number of steps sent at once: a call of an actor costs as much as many steps."""

SpacesAndSeed = Callable[[gym.Space[Any], gym.Space[Any], int], Any]
"""Makes an agent from the spaces of an environment and a seed."""


class ActingPolicy(Protocol):
    """The policy that a worker asks for actions."""

    def act(self, obs: Any, epsilon: float = 0.0) -> Any:
        """Return an action for each of N observations, a random one with probability epsilon."""

    def load_policy(self, weights: dict[str, Any]) -> None:
        """Act on these weights from now on."""


@dataclass
class RolloutReport:
    """The work of a worker."""

    worker: int
    steps: int = 0
    """Environment steps in the replay, including those of previous incarnations."""
    returns: list[float] = field(default_factory=list)
    """Returns of the episodes that ended, oldest first."""
    lengths: list[int] = field(default_factory=list)
    version: int = 0
    """Version of the weights that it last acted on."""


class RolloutWorker(Block):
    """Collects experience in an actor.

    Args:
        env: Id of the environment, or a function that makes one.
        make_policy: Makes the policy from observation space, action space and seed.
        server: The server of the weights.
        buffer: Where experience is stored.
        worker: Its number, unique among workers.
        seed: Seed of the run, from which every worker derives its own.
        num_envs: Environments that it steps together, as the buffer was told.
        fragment: Steps of each environment that are sent at once.
        random_steps: While all workers together have done fewer steps than this, actions are
            uniformly random.
        max_ep_len: An episode is cut off after so many steps. It is then truncated, and also
            terminated if it ended by itself in that very step.
        epsilon: Maps the steps of all workers to the probability of a random action.
        update_freq: Minimum number of versions between two sets of weights that it acts on.
        max_restarts: How many times it may be restarted after its process died. It then continues
            with the remaining steps.
        **options: Options of Ray, such as `num_cpus` (1) or `resources`.
    """

    def __init__(
        self,
        env: Any,
        make_policy: SpacesAndSeed,
        server: ParameterServer,
        buffer: ReplayBuffer,
        *,
        worker: int = 0,
        seed: int = 0,
        num_envs: int = 1,
        fragment: int = LEAST_FRAGMENT,
        random_steps: int = 0,
        max_ep_len: int | None = None,
        epsilon: Callable[[int], float] | None = None,
        update_freq: int = 1,
        max_restarts: int = 0,
        **options: Any,
    ) -> None:
        if fragment * num_envs < LEAST_FRAGMENT:
            raise OptionError(
                f"fragment={fragment} is not possible with num_envs={num_envs}",
                f"at least {LEAST_FRAGMENT} steps must be sent at once, because every call costs "
                "time",
                f"fragment={-(-LEAST_FRAGMENT // num_envs)}",
            )
        if max_ep_len is not None and max_ep_len < 1:
            raise OptionError(
                f"max_ep_len={max_ep_len} is not possible",
                "it must be a number of steps, 1 or more",
                "max_ep_len=1000",
            )
        arguments = {
            "env": env,
            "make_policy": make_policy,
            "worker": worker,
            "seed": seed,
            "num_envs": num_envs,
            "fragment": fragment,
            "random_steps": random_steps,
            "max_ep_len": max_ep_len,
            "epsilon": epsilon,
            "update_freq": update_freq,
        }
        settings = {
            "num_cpus": 1,
            "max_restarts": max_restarts,
            "max_task_retries": max_restarts,
            **options,
        }
        super().__init__(f"rollout worker {worker}", Roller, arguments, settings)
        self._server, self._buffer = server, buffer

    def rollout(self, steps: int) -> Call:
        """Start to do so many steps, rounded up to whole fragments; `finish` waits for the report.

        The number counts the steps of this worker in all calls and incarnations. It ends earlier if
        the buffer is sealed.
        """
        # Handles are sent with each call: those of a constructor may be invalid after a restart.
        return self._call("rollout", steps, self._server, self._buffer)


class Roller:
    """The object in the actor. See `RolloutWorker`."""

    def __init__(
        self,
        env: Any,
        make_policy: SpacesAndSeed,
        worker: int,
        seed: int,
        num_envs: int,
        fragment: int,
        random_steps: int,
        max_ep_len: int | None,
        epsilon: Callable[[int], float] | None,
        update_freq: int,
    ) -> None:
        self._env = limited(env, max_ep_len)
        self._make_policy = make_policy
        self._seed = seed
        self._num_envs = num_envs
        self._fragment = fragment
        self._random_steps = random_steps
        self._epsilon = epsilon
        self._update_freq = update_freq
        self._report = RolloutReport(worker)
        self._has_begun = False

    def _begin(self, server: ParameterServer, buffer: ReplayBuffer) -> None:
        """Make environments and policy, to continue after the steps that are already stored."""
        self._server, self._buffer = server, buffer
        worker = self._report.worker
        self._report.steps = buffer.join(f"worker {worker}")
        self._total = buffer.rollout_steps
        # With the number of steps, so that a restarted worker does not repeat what it has done.
        own = derive_seed(self._seed, "worker", worker, self._report.steps)
        envs = make_envs(self._env, self._num_envs, own)
        spaces = envs.single_observation_space, envs.single_action_space
        self._policy: ActingPolicy = self._make_policy(*spaces, own)
        self._chooser = _Chooser(self._policy, spaces[1], self._num_envs, own)
        self._collector = Collector(self._chooser, envs, self._fragment)
        self._has_begun = True

    def rollout(self, steps: int, server: ParameterServer, buffer: ReplayBuffer) -> RolloutReport:
        """Do the remaining steps."""
        if not self._has_begun:
            self._begin(server, buffer)
        report = self._report
        done = report.steps
        while done < steps:
            self._take_newest()
            self._chooser.at_random = self._total < self._random_steps
            eps = 0.0 if self._epsilon is None else self._epsilon(self._total)
            data = self._collector.collect(policy_kwargs={"eps": eps})
            total = self._buffer.store(data, report.version)
            if total is None:
                break
            self._total = total
            done += len(data)
            for episode in self._collector.take_episodes():
                report.returns.append(episode.return_)
                report.lengths.append(episode.length)
        report.steps = self._buffer.flush()
        return report

    def _take_newest(self) -> None:
        have = self._report.version
        newest = self._server.pull(newer_than=have + self._update_freq - 1 if have else 0)
        if newest is not None:
            self._policy.load_policy(newest.weights)
            self._report.version = newest.version


class _Chooser:
    """Acts at random at first, then by the policy."""

    def __init__(
        self, policy: ActingPolicy, space: gym.Space[Any], num_envs: int, seed: int
    ) -> None:
        self.at_random = False
        self._policy = policy
        self._space = space
        self._num_envs = num_envs
        self._space.seed(derive_seed(seed, "random actions") % 2**32)

    def explore(self, obs: Any, epsilon: float) -> Any:
        if self.at_random:
            return np.stack([np.asarray(self._space.sample()) for _ in range(self._num_envs)])
        return self._policy.act(obs, epsilon)


def limited(env: Any, max_ep_len: int | None) -> Any:
    """Return a factory of such environments whose episodes have at most `max_ep_len` steps."""
    if max_ep_len is None:
        return env
    make_one = env_maker(env, {})

    def make_limited() -> gym.Env[Any, Any]:
        # In addition to a limit of the environment itself: the shorter one applies. The
        # environment's `terminated` is passed on unchanged.
        return gym.wrappers.TimeLimit(make_one(), max_ep_len)

    return make_limited
