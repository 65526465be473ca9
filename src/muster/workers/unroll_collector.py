"""`UnrollCollector`: steps environments, one unroll after another, into slots that a network reads.

    each step:  obs[t] -> net.act -> action, logp; `Actor` -> reward, ends, obs[t + 1]
    at the end: the episodes that ended, and the last observations of truncated ones

Random numbers derive from (seed, unroll), so the state consists of the environments' states, a
count, and the recurrent state. A restored collector continues with exactly the step that it would
have taken.
"""

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from muster.data.obs import at, concatenated, put
from muster.data.slots import SlotPlan, Slots
from muster.data.unrolls import CutEpisodes
from muster.envs import VectorEnv
from muster.envs.step_metrics import MetricSums
from muster.seeding import generator
from muster.workers.actor import Actor
from muster.workers.step_views import ActGroup, step_views

Array = NDArray[Any]


class ActingAgent(Protocol):
    """The agent of a collector of unrolls."""

    net: Any
    """Acts: a `PolicyNet` or a `RecurrentPolicy`."""
    obs_space: Any
    action_space: Any
    head: Any
    """How the network's outputs are interpreted."""
    state_width: int
    """Numbers in the recurrent state of one environment; 0 if the network is not recurrent."""

    def noise(
        self, rng: np.random.Generator, shape: tuple[int, ...], env_step: int
    ) -> NDArray[np.float32]:
        """Return the random numbers of actions of this shape, [*shape, width]."""

    def to_env(self, action: Array) -> Array:
        """Return actions in the form that environments accept."""


def unroll_plan(agent: ActingAgent, steps: int, num_envs: int, unrolls: int) -> SlotPlan:
    """Return the memory layout of unrolls of `num_envs` environments each, one slot per unroll."""
    return SlotPlan(
        agent.obs_space,
        agent.head.width,
        agent.head.dtype,
        agent.action_space,
        steps=steps,
        envs=num_envs * unrolls,
        slots=unrolls,
        state_width=agent.state_width,
        chunk=steps,
    )


class Collected(NamedTuple):
    """The data of an unroll besides its columns."""

    cut: CutEpisodes
    episodes: list[tuple[float, float]]
    """Return and length of each episode that ended in the unroll."""
    metrics: MetricSums
    """Sums of the environment's own metrics in the unroll."""


class UnrollCollector:
    """Collects unrolls, one at a time.

    Args:
        agent: Chooses the actions.
        envs: The environments, as many as a slot has columns. They are reset here.
        slots: The destination of the unrolls.
        seed: Seed of the random numbers.
    """

    def __init__(self, agent: ActingAgent, envs: VectorEnv, slots: Slots, seed: int) -> None:
        plan = slots.plan
        self.actor = Actor(envs)
        """Steps the environments and measures the time."""
        self.env_step = 0
        """Environment steps so far, of all environments together."""
        self._agent = agent
        self._envs = envs
        self._slots = slots
        self._seed = seed
        self._unrolls = 0
        self._state = np.zeros((plan.width, plan.state_width), np.float32)
        self._first = np.ones(plan.width, np.bool_)
        self._noise = np.empty((plan.steps, plan.width, plan.action_width), np.float32)
        memory = (self._state, self._first) if plan.state_width else ()
        columns = map(plan.columns, range(plan.slots))
        self._views = [
            step_views(slots, mine, [ActGroup(mine, self._noise, memory)]) for mine in columns
        ]
        envs.reset()

    def collect(self, slot: int = 0) -> Collected:
        """Take the steps of one unroll, and write them to a slot."""
        slots, views = self._slots, self._views[slot]
        mine, remembers = slots.plan.columns(slot), slots.plan.state_width > 0
        acts, actions, to_env = views.acts, views.actions, self._agent.to_env
        net_act = self._agent.net.act
        rng = generator(self._seed, "unroll", self._unrolls)
        self._noise[:] = self._agent.noise(rng, self._noise.shape[:2], self.env_step)
        put(slots.obs, (0, mine), self._envs.obs)
        slots.terminated[:, mine] = False
        slots.truncated[:, mine] = False
        cut: list[tuple[int, int, Any, Array]] = []
        episodes: list[tuple[float, float]] = []
        if slots.state is not None:
            slots.state[0, mine] = self._state

        def choose(t: int) -> Array:
            if remembers:
                slots.first[t, mine] = self._first  # type: ignore[index]  # not None here
            net_act(*acts[t][0])
            if remembers:
                self._first[:] = False
            return to_env(actions[t])

        def ended(t: int, info: Any, ends: Array, cuts: Array) -> None:
            episodes.extend((each.return_, each.length) for each in info["episodes"])
            for env in np.flatnonzero(cuts & ~ends).tolist():
                cut.append((t, env, at(info["final_obs"], [env]), self._state[[env]]))
            self._first[:] = ends | cuts

        self.actor.fill(views.rows, choose, ended)
        self._unrolls += 1
        self.env_step += slots.plan.steps * slots.plan.width
        return Collected(self._cut_episodes(cut), episodes, self._envs.take_metrics())

    @property
    def memory(self) -> tuple[Array, ...]:
        """The recurrent state, and where episodes begin; empty if the network is not recurrent."""
        return (self._state.copy(), self._first) if self._slots.plan.state_width else ()

    def state_dict(self) -> dict[str, Any]:
        """Return the state that determines the next step, as plain values and arrays."""
        return {
            "env_step": self.env_step,
            "unrolls": self._unrolls,
            "memory": self._state.copy(),
            "envs": self._envs.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state that `state_dict` returned."""
        self._envs.load_state_dict(state["envs"])
        self.env_step, self._unrolls = int(state["env_step"]), int(state["unrolls"])
        self._state[:] = state["memory"]
        # This includes environments whose episode could not be restored.
        self._first[:] = np.equal(self._envs.books().lengths, 0)

    def close(self) -> None:
        """Close the environments."""
        self._envs.close()

    def _cut_episodes(self, cut: list[tuple[int, int, Any, Array]]) -> CutEpisodes:
        steps, envs = (np.array([each[i] for each in cut], np.int64) for i in (0, 1))
        return CutEpisodes(
            steps,
            envs,
            concatenated([each[2] for each in cut]) if cut else None,
            np.concatenate([self._state[:0], *(each[3] for each in cut)]),
        )
