"""`SlotWorker`: one of the equal workers of a synchronous run, with its share of the slots.

team (shared arrays) ─┬─ Rollouts      steps its environments into its slots
                      ├─ LearnerGroup  their gradients, the same update as everybody
                      └─ Pace          where it is, for who may take its place

It begins in one of three ways: anew, from a checkpoint, or where one that was killed stopped.
"""

import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from muster.algos.in_step import InStepAgent
from muster.data.slots import Fields, SlotPlan
from muster.data.standing import Standing, columns_of
from muster.envs import make_envs
from muster.errors import TaskError
from muster.flow import Team
from muster.flow.team import members
from muster.workers.ahead import Ahead
from muster.workers.episode_log import SIZE
from muster.workers.learner_group import LearnerGroup
from muster.workers.pace import COLLECTED, ENDED, Pace
from muster.workers.rollouts import Rollouts, book_fields


def slot_plan(agent: InStepAgent, num_envs: int) -> SlotPlan:
    """Return how so many environments are cut into slots, as an agent's configuration says."""
    cfg = agent.cfg
    return SlotPlan(
        agent.obs_space,
        agent.head.width,
        agent.head.dtype,
        agent.action_space,
        steps=cfg.rollout,
        envs=num_envs,
        slots=cfg.slots,
        buffers=1 + cfg.lag,
        state_width=agent.state_width,
        chunk=cfg.sequence if agent.state_width else 1,
        schema=getattr(agent, "schema", ()),
    )


def slot_fields(agent: InStepAgent, plan: SlotPlan, workers: int) -> Fields:
    """Return all that a team of so many workers has in common."""
    return {
        **plan.fields(),
        **Standing.fields(plan),
        **book_fields(plan, agent.normalizer),
        **LearnerGroup.fields(agent, plan, workers),
        "decision": ((2,), np.int64),
        "started": ((3,), np.float64),
        "episode_log": ((2, SIZE), np.float64),
        "acting": ((2, agent.weights.vector.size if agent.cfg.lag else 0), np.float32),
    }


class SlotWorker:
    """Collects and learns together with the other members of its team.

    Args:
        agent: What acts and learns; the same on every member.
        env: Id of the environment, or what else `make_envs` takes.
        num_envs: Environments of all members together.
        seed: Of the run.
        begin: Called if the worker begins and does not take over: makes the agent what it is to
            begin with, and returns a state of `state_dict` to go on from, or None.
        backend: What runs the environments, as for `make_envs`.
    """

    def __init__(
        self,
        agent: InStepAgent,
        env: Any,
        num_envs: int,
        seed: int,
        begin: Callable[[], Mapping[str, Any] | None] | None = None,
        backend: str = "auto",
    ) -> None:
        self._born, self._born_at = time.monotonic(), time.time()
        cfg = agent.cfg
        plan = slot_plan(agent, num_envs)
        self.agent = agent
        self.team = Team(slot_fields(agent, plan, members()))
        self.pace = Pace(self.team)
        mine = plan.share(self.team.index, self.team.size)
        self.plan = plan
        """How all environments are cut into slots."""
        self._columns = plan.span(mine)
        self._slots = slice(mine.start, mine.stop)
        width = self._columns.stop - self._columns.start
        self._envs = make_envs(env, width, seed, backend, self._columns.start)
        self._actor = agent.twin() if cfg.lag else agent
        self._ahead: Ahead | None = None
        self.rollouts = Rollouts(self._actor, self._envs, plan, self.team, mine, seed)
        self.group = LearnerGroup(agent, plan, self.team, self.pace, mine, seed)
        self.rollout = 0
        """The first rollout that this worker takes part in."""
        self._collected = -1
        self.ahead_seconds = 0.0
        """Spent on waiting for what was collected while the rollout before was learnt from."""
        try:
            if self.pace.taken_over:
                self._take_over()
            else:
                self._begin(None if begin is None else begin())
        except BaseException:
            self._envs.close()
            raise

    @property
    def is_first(self) -> bool:
        """Whether it is the one that evaluates, shows progress and writes files."""
        return self.team.index == 0

    @property
    def started(self) -> float:
        """When the first of all incarnations of the first worker began, by `time.monotonic`."""
        began, _, wall_clock = self.team["started"]
        if self.team.moved:  # clocks of two machines have only the time of day in common
            return self._born - (self._born_at - float(wall_clock))
        return float(began)

    @property
    def first_step(self) -> int:
        """Environment steps before that, of a resumed run."""
        return int(self.team["started"][1])

    def env_steps(self, loops: int) -> int:
        """Return the environment steps of so many rollouts, of all members."""
        return loops * self.plan.steps * self.plan.envs

    def collect(self, loop: int) -> None:
        """Have rollout `loop` collected, by all members.

        With a lag of 1 it has been while the one before was learnt from, and the next one is begun.
        """
        self.pace.begin(loop, self.agent.train_iter)
        if self.pace.is_new(loop, COLLECTED):
            self.group.note_start(loop)
        if self.pace.is_new(loop, COLLECTED) and self._collected < loop:
            self.rollouts.collect(loop)
            self._collected = loop
        if self.pace.is_new(loop, COLLECTED):
            self.rollouts.show(loop)
        self.group.meet(loop, COLLECTED)
        if self.agent.cfg.lag and self._collected == loop:
            self._act_like_before(loop)
            self._ahead = Ahead(lambda: self.rollouts.collect(loop + 1))
            self._collected = loop + 1

    def learn(self, loop: int) -> dict[str, float]:
        """Learn from rollout `loop` with all members, and return the means of its losses."""
        self.group.prepare(loop)
        metrics = self.group.learn(loop)
        if self._ahead is not None:
            started = time.perf_counter()
            self._ahead.join()
            self._ahead = None
            self.ahead_seconds += time.perf_counter() - started
            self.rollouts.show(loop + 1)
        return metrics

    def agree(self, loop: int, is_last: bool) -> bool:
        """End a loop with all members, and return whether it is the last: the first one decides."""
        decision = self.team["decision"]
        if self.is_first and self.pace.is_new(loop, ENDED):
            decision[loop % 2] = is_last
            self.team.show("decision", slice(loop % 2, loop % 2 + 1))
        self.group.meet(loop, ENDED)
        return bool(decision[loop % 2])

    def state_dict(self, loop: int) -> dict[str, Any]:
        """Return where all environments stand before rollout `loop`, and what belongs to it.

        After the rollout before was learnt from, and until `loop` has been. Whoever asks gets the
        state of all members.
        """
        everyone = slice(0, self.plan.envs)
        template = {**self._envs.state_dict(), "num_envs": self.plan.envs}
        standing = self.rollouts.standing
        return {
            "rollout": loop,
            "steps": self.plan.steps,
            "lag": self.agent.cfg.lag,
            "envs": standing.state_of(loop, everyone, template),
            "running_returns": standing.extra[standing.page(loop)].copy(),
            "memory": standing.state[standing.page(loop)].copy(),
            "reward_scale": self.group.reward_scale(loop),
            "episodes": self.episodes_noted(loop).copy(),
            # What acts in that rollout, if it is not what has been learnt by now.
            "actor": dict(self._actor.weights.state_dict()) if self.agent.cfg.lag else {},
        }

    def episodes_noted(self, loops: int) -> NDArray[np.float64]:
        """Return the state of the episode log after so many rollouts: the last, or the one before.

        It outlives the first worker: one that takes its place counts each episode once, too.
        """
        noted: NDArray[np.float64] = self.team["episode_log"][loops % 2]
        return noted

    def note_episodes(self, loops: int, state: NDArray[np.float64]) -> None:
        """Keep the state of the episode log after so many rollouts."""
        self.team["episode_log"][loops % 2] = state
        self.team.show("episode_log", loops % 2)

    def close(self) -> None:
        """Close the environments."""
        if self._ahead is not None:  # a run that failed
            with contextlib.suppress(Exception):
                self._ahead.join()
        self._envs.close()

    def _act_like_before(self, loop: int) -> None:
        """Have the next rollout collected with what was learnt before this loop."""
        if self.agent.train_iter == self.pace.first_update:
            self._actor.weights.copy_from(self.agent.weights)
            # All members write the same; for one that is replaced in the middle of this loop.
            self.team["acting"][loop % 2] = self._actor.weights.vector

    def _begin(self, saved: Mapping[str, Any] | None) -> None:
        self.rollout = 0 if saved is None else int(saved["rollout"])
        if self.is_first:
            steps = self.env_steps(self.rollout)
            self.team["started"][:] = time.monotonic(), steps, time.time()
            self.team.show("started")
        self._actor.weights.copy_from(self.agent.weights)
        if saved is None:
            self._envs.reset()
            self.rollouts.standing.write(0, self._envs, self._columns)
            self.rollouts.show_standing(0)
            self.group.begin(0)
            return
        if "episodes" in saved:  # not in a checkpoint of an earlier version
            self.note_episodes(self.rollout, saved["episodes"])
        standing = self.rollouts.standing
        page = standing.page(self.rollout)
        self._envs.load_state_dict(columns_of(saved["envs"], self._columns))
        standing.write(self.rollout, self._envs, self._columns)
        standing.extra[page, self._columns] = saved["running_returns"][self._columns]
        standing.state[page, self._columns] = saved["memory"][self._columns]
        self._forget_lost_episodes(page)
        self.rollouts.show_standing(self.rollout)
        self.team.show("stand_ring", (slice(None), self._columns))  # whole episodes, for once
        self.rollouts.remember(self.rollout)
        self.group.begin(self.rollout, saved["reward_scale"])
        self._collected = self.rollout - 1
        if saved["actor"]:
            self._actor.load_parts({"policy": saved["actor"]})

    def _forget_lost_episodes(self, page: int) -> None:
        """Have no sum of rewards for episodes that begin here: some could not be restored."""
        begins = np.equal(self._envs.books().lengths, 0)
        self.rollouts.standing.extra[page, self._columns][begins] = 0.0

    def _take_over(self) -> None:
        """Go on where the worker before has stopped.

        Without a lag, rollout `loop` is there if it said so. With one, the first thing that is said
        in a loop is that its rollout is there, and the last one that the next is too.
        """
        self.rollout = loop = self.pace.loop
        if self.team.moved:
            self._arrive_from_elsewhere()
        if self.team.moved and self.pace.is_new(loop, ENDED):
            self._collect_again(loop)
            self.group.restore(loop)
            return
        self.group.restore(loop)
        if self.agent.cfg.lag:
            self._collected = loop if self.pace.is_new(loop, ENDED) else loop + 1
            self._actor.weights.copy_from(self.agent.weights)
            if self.agent.train_iter > self.pace.first_update:
                self._actor.weights.load(self.team["acting"][loop % 2])
        else:
            self._collected = loop - 1 if self.pace.is_new(loop, COLLECTED) else loop
        self._stand_at(self._collected + 1)

    def _stand_at(self, loop: int) -> None:
        """Bring the environments to where they stood before rollout `loop`."""
        template = self._envs.state_dict()
        state = self.rollouts.standing.state_of(loop, self._columns, template)
        self._envs.load_state_dict(state)
        self._forget_lost_episodes(self.rollouts.standing.page(loop))
        self.rollouts.remember(loop)

    def _arrive_from_elsewhere(self) -> None:
        """See to it that this worker can go on where one on another machine stopped."""
        if self.agent.cfg.lag:
            raise TaskError(
                "a worker that collects ahead cannot go on on another machine",
                "what was under way there is lost",
                "--lag 0, or --resume, which goes on from the last checkpoint",
            )
        if self.is_first:  # by the clock of this machine
            self.team["started"][0] = self.started

    def _collect_again(self, loop: int) -> None:
        """Collect a rollout that a worker on another machine had collected, and took along."""
        self.group.restore_start(loop)
        self.group.note_start(loop)
        self._stand_at(loop)
        books = self.team["books"][loop % 2, self._slots]
        known = books.copy()
        self.rollouts.collect(loop)
        # Environments that cannot be restored do something else now; all have learnt of this.
        books[:] = known
        self._collected = loop
