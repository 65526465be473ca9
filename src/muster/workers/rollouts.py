"""`Rollouts`: steps one worker's share of the environments, into slots that all workers see.

    each step:   obs[t] -> net.act -> action, logp, value; `Actor` -> reward, ends, obs[t + 1]
    at the end:  values of the next states, moments of the slots, states of the environments

Random numbers derive from (seed, slot, loop), so the result does not depend on which worker
collects a slot.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from muster.algos.in_step import InStepAgent
from muster.data.obs import at, concatenated, put
from muster.data.slots import Fields, SlotPlan, Slots, obs_parts, slots_in
from muster.data.standing import Standing
from muster.envs import VectorEnv
from muster.flow import Team
from muster.nets.normalizer import ObsNorm
from muster.rl_utils.moments import Moments, running_returns
from muster.seeding import generator
from muster.workers import metric_table
from muster.workers.actor import Actor
from muster.workers.episode_log import WINDOW, EndedEpisodes
from muster.workers.step_views import ActGroup, step_views

Array = NDArray[Any]

EPISODES, RETURN_SUM, LENGTH_SUM, REWARD_MEAN, REWARD_M2, OBS = range(6)
"""Columns of a slot's books. From `OBS` on: mean, then m2, of every normalised observation."""


def book_fields(plan: SlotPlan, normalizer: ObsNorm | None) -> Fields:
    """Return the shared arrays of the slots' books: two pages, a row for each slot."""
    width = 0 if normalizer is None else normalizer.width
    return {
        "books": ((2, plan.slots, OBS + 2 * width), np.float64),
        "ended_returns": ((2, plan.slots, WINDOW), np.float64),
        "env_metrics": ((2, plan.slots, metric_table.SIZE), metric_table.ROW),
    }


def ended_in(team: Team, loop: int) -> EndedEpisodes:
    """Return the episodes that ended in a rollout, slot by slot, from a team's books."""
    books, returns = team["books"][loop % 2], team["ended_returns"][loop % 2]
    counts = books[:, EPISODES].astype(int).tolist()
    return EndedEpisodes(
        [
            each
            for row, n in zip(returns, counts, strict=True)
            for each in row[: min(n, WINDOW)].tolist()
        ],
        sum(counts),
        float(books[:, RETURN_SUM].sum()),
        float(books[:, LENGTH_SUM].sum()),
        metric_table.read_all(team["env_metrics"][loop % 2]),
    )


class Rollouts:
    """Collects some slots.

    Args:
        agent: Chooses the actions.
        envs: The environments of these slots.
        plan: Layout of all slots.
        team: Holds the shared arrays.
        mine: The slots to collect.
        seed: Seed of the run.
    """

    def __init__(
        self,
        agent: InStepAgent,
        envs: VectorEnv,
        plan: SlotPlan,
        team: Team,
        mine: range,
        seed: int,
    ) -> None:
        self.actor = Actor(envs)
        """Steps the environments and measures the time."""
        self.standing = Standing(plan, {name: team[name] for name in Standing.fields(plan)})
        """The states of all environments."""
        self._agent = agent
        self._envs = envs
        self._plan = plan
        self._mine = mine
        self._seed = seed
        self._columns = plan.span(mine)
        self._team = team
        self._books: Array = team["books"]
        self._returns: Array = team["ended_returns"]
        self._metrics: Array = team["env_metrics"]
        # An earlier worker may have written there, and what it wrote has to be replaced.
        self._tells = any(map(metric_table.read_all, self._metrics))
        self._metric_rows = [1] * plan.slots
        self._slots = slots_in(plan, team)
        # A network whose rows depend on their neighbours computes each slot separately.
        whole = [self._columns]
        groups = whole if agent.net.row_exact else [plan.columns(slot) for slot in mine]
        self._groups = groups
        width = self._columns.stop - self._columns.start
        self._state = np.zeros((width, plan.state_width), np.float32)
        self._first = np.ones(width, np.bool_)
        self._memory = [
            (self._state[_within(each, self._columns)], self._first[_within(each, self._columns)])
            if plan.state_width
            else ()
            for each in groups
        ]
        self._noise = [
            np.empty((plan.steps, each.stop - each.start, plan.action_width), np.float32)
            for each in groups
        ]
        acting = list(map(ActGroup, groups, self._noise, self._memory))
        self._steps = [step_views(slots, self._columns, acting) for slots in self._slots]

    def remember(self, loop: int) -> None:
        """Load the recurrent state before rollout `loop`, from the shared state."""
        self._state[:] = self.standing.state[self.standing.page(loop), self._columns]
        self._first[:] = np.equal(self._envs.books().lengths, 0)

    def collect(self, loop: int) -> None:
        """Collect rollout `loop`; write its steps, its books, and the environments' states."""
        buffer = loop % self._plan.buffers
        slots, steps = self._slots[buffer], self._steps[buffer]
        agent, envs = self._agent, self._envs
        net_act, to_env, acts, actions = agent.net.act, agent.to_env, steps.acts, steps.actions
        act_groups = getattr(agent.net, "act_groups", None)
        self._draw_noise(loop)
        put(slots.obs, (0, self._columns), envs.obs)
        remembers = agent.state_width > 0
        cut: list[_Cut] = []
        ended: list[tuple[int, float, int]] = []
        slots.terminated[:, self._columns] = False
        slots.truncated[:, self._columns] = False

        def choose(t: int) -> Array:
            if remembers:
                self._note_memory(slots, t)
            if act_groups is not None:
                act_groups(acts[t])
            else:
                for arrays in acts[t]:
                    net_act(*arrays)
            self._first[:] = False
            return to_env(actions[t])

        def note_ends(t: int, info: Any, ends: Array, cuts: Array) -> None:
            ended.extend((each.env, each.return_, each.length) for each in info["episodes"])
            for env in np.flatnonzero(cuts & ~ends).tolist():
                cut.append(_Cut(t, env, at(info["final_obs"], [env]), self._state[[env]]))
            self._first[:] = ends | cuts

        self.actor.fill(steps.rows, choose, note_ends)
        self._value_what_follows(slots, cut)
        self._keep_books(loop, slots, ended)
        done = to_env(slots.action[:, self._columns])
        self.standing.write(loop + 1, envs, self._columns, done)
        self.standing.state[self.standing.page(loop + 1), self._columns] = self._state

    def show(self, loop: int) -> None:
        """Show the books of a rollout, and the environments' states, to the other members."""
        mine = slice(self._mine.start, self._mine.stop)
        self._team.show("books", (loop % 2, mine))
        self._team.show("ended_returns", (loop % 2, mine))
        for slot in self._mine if self._tells else ():
            self._team.show("env_metrics", (loop % 2, slot, slice(self._metric_rows[slot])))
        self.show_standing(loop + 1)

    def show_standing(self, loop: int) -> None:
        """Show the environments' states before a rollout to the other members."""
        for name, index in self.standing.written(loop, self._columns):
            self._team.show(name, index)

    def _draw_noise(self, loop: int) -> None:
        """Draw the random numbers of a rollout, slot by slot."""
        plan = self._plan
        env_step = loop * plan.steps * plan.envs
        per_slot = len(self._groups) > 1
        for number, slot in enumerate(self._mine):
            rng = generator(self._seed, "slot", slot, "rollout", loop)
            drawn = self._agent.noise(rng, (plan.steps, plan.width), env_step)
            group, first = (number, 0) if per_slot else (0, number * plan.width)
            self._noise[group][:, first : first + plan.width] = drawn

    def _note_memory(self, slots: Slots, t: int) -> None:
        """Write the recurrent state before step `t`."""
        assert slots.first is not None and slots.state is not None
        slots.first[t, self._columns] = self._first
        if t % self._plan.chunk == 0:
            slots.state[t // self._plan.chunk, self._columns] = self._state

    def _value_what_follows(self, slots: Slots, cut: list["_Cut"]) -> None:
        """Write the values after the last step, and of the last states of truncated episodes."""
        values, last, first = self._agent.net.values, self._plan.steps, self._columns.start
        slots.final_value[:, self._columns] = 0
        for group, memory in zip(self._groups, self._memory, strict=True):
            values(at(slots.obs, (last, group)), slots.value[last, group], *memory)
            here = [each for each in cut if group.start <= first + each.env < group.stop]
            if here:
                found = np.empty(len(here), np.float32)
                state = np.concatenate([each.state for each in here])
                begins = np.zeros(len(here), np.bool_)
                values(
                    concatenated([each.obs for each in here]),
                    found,
                    *((state, begins) if memory else ()),
                )
                for each, value in zip(here, found, strict=True):
                    slots.final_value[each.step, first + each.env] = value

    def _keep_books(self, loop: int, slots: Slots, ended: list[tuple[int, float, int]]) -> None:
        """Write the summary of each slot that other members need."""
        plan, page = self._plan, loop % 2
        for slot in self._mine:
            columns = plan.columns(slot)
            book = self._books[page, slot]
            book[:] = 0
            first = columns.start - self._columns.start
            own = [each for each in ended if first <= each[0] < first + plan.width]
            book[EPISODES] = len(own)
            book[RETURN_SUM] = sum(return_ for _, return_, _ in own)
            book[LENGTH_SUM] = sum(length for _, _, length in own)
            last = [return_ for _, return_, _ in own[-WINDOW:]]
            self._returns[page, slot, : len(last)] = last
            noted = self._envs.take_metrics(first, first + plan.width)
            self._tells = self._tells or bool(noted)
            if self._tells:
                self._metric_rows[slot] = metric_table.write(self._metrics[page, slot], noted)
            self._note_rewards(loop, slots, columns, book)
            self._note_observations(slots, columns, book)

    def _note_rewards(self, loop: int, slots: Slots, columns: slice, book: Array) -> None:
        cfg = self._agent.cfg
        if not cfg.normalize_reward:
            return
        standing = self.standing
        carried = standing.extra[standing.page(loop), columns, 0].copy()
        returns = np.empty((self._plan.steps, self._plan.width))
        running_returns(
            slots.reward,
            slots.terminated,
            slots.truncated,
            cfg.gamma,
            carried,
            returns,
            columns.start,
        )
        standing.extra[standing.page(loop + 1), columns, 0] = carried
        found = Moments.of(returns.reshape(-1))
        book[REWARD_MEAN], book[REWARD_M2] = found.mean, found.m2

    def _note_observations(self, slots: Slots, columns: slice, book: Array) -> None:
        normalizer = self._agent.normalizer
        if normalizer is None:
            return
        place = OBS
        parts = obs_parts(slots.obs)
        for key in normalizer.keys:
            rows = parts["" if key is None else f".{key}"][: self._plan.steps, columns]
            found = Moments.of(rows.reshape(self._plan.steps * self._plan.width, -1))
            for numbers in (found.mean, found.m2):
                book[place : place + numbers.size] = numbers
                place += numbers.size


class _Cut(NamedTuple):
    """A truncated episode: its step, environment, true last observation and recurrent state."""

    step: int
    env: int
    obs: Any
    state: Array


def _within(part: slice, whole: slice) -> slice:
    return slice(part.start - whole.start, part.stop - whole.start)
