"""`SlotWorker`: one of the equal workers of a synchronous run, with its share of the slots.

team (shared arrays) ─┬─ Rollouts      steps its environments into its slots
                      ├─ LearnerGroup  their gradients, the same update on every worker
                      └─ Pace          its position in the loop, for a replacement

A worker begins in one of three ways: from the start, from a checkpoint, or where a killed worker
stopped.
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
from muster.envs.step_metrics import MetricSums
from muster.errors import TaskError
from muster.flow import Team
from muster.flow.team import members
from muster.workers import metric_table
from muster.workers.ahead import Ahead
from muster.workers.episode_log import SIZE
from muster.workers.learner_group import LearnerGroup
from muster.workers.pace import COLLECTED, ENDED, Pace
from muster.workers.rollouts import Rollouts, book_fields


def slot_plan(agent: InStepAgent, num_envs: int) -> SlotPlan:
    """Return the division of environments into slots, according to an agent's configuration."""
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
    """Return all shared arrays of a team of `workers` workers."""
    return {
        **plan.fields(),
        **Standing.fields(plan),
        **book_fields(plan, agent.normalizer),
        **LearnerGroup.fields(agent, plan, workers),
        "decision": ((2,), np.int64),
        "started": ((3,), np.float64),
        "episode_log": ((2, SIZE), np.float64),
        "metric_log": ((2, metric_table.SIZE), metric_table.ROW),
        "acting": ((2, agent.weights.vector.size if agent.cfg.lag else 0), np.float32),
    }


class SlotWorker:
    """Collects and learns together with the other members of its team.

    Args:
        agent: Acts and learns; the same on every member.
        env: Id of the environment, or another argument that `make_envs` accepts.
        num_envs: Environments of all members together.
        seed: Seed of the run.
        begin: Called unless the worker takes over from a previous one: sets the agent's initial
            state, and returns a state of `state_dict` to restore, or None.
        backend: Backend of the environments, as for `make_envs`.
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
        """Division of all environments into slots."""
        self._columns = plan.span(mine)
        self._slots = slice(mine.start, mine.stop)
        width = self._columns.stop - self._columns.start
        self._envs = make_envs(env, width, seed, backend, self._columns.start)
        self._actor = agent.twin() if cfg.lag else agent
        self._ahead: Ahead | None = None
        self.rollouts = Rollouts(self._actor, self._envs, plan, self.team, mine, seed)
        self.group = LearnerGroup(agent, plan, self.team, self.pace, mine, seed)
        self.rollout = 0
        """The first rollout of this worker."""
        self._collected = -1
        self.ahead_seconds = 0.0
        """Seconds spent on waiting for the rollout that was collected during learning."""
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
        """Whether this worker evaluates, shows progress and writes files."""
        return self.team.index == 0

    @property
    def started(self) -> float:
        """When the first incarnation of the first worker started, by `time.monotonic`."""
        began, _, wall_clock = self.team["started"]
        if self.team.moved:  # the clocks of two machines share only the time of day
            return self._born - (self._born_at - float(wall_clock))
        return float(began)

    @property
    def first_step(self) -> int:
        """Environment steps before the start, of a resumed run."""
        return int(self.team["started"][1])

    def env_steps(self, loops: int) -> int:
        """Return the environment steps of `loops` rollouts, of all members."""
        return loops * self.plan.steps * self.plan.envs

    def collect(self, loop: int) -> None:
        """Collect rollout `loop`, together with all members.

        With a lag of 1, the rollout was collected while the previous one was learnt from; then
        start to collect the next one.
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
        """End a loop with all members; return whether it is the last, as the first one decides."""
        decision = self.team["decision"]
        if self.is_first and self.pace.is_new(loop, ENDED):
            decision[loop % 2] = is_last
            self.team.show("decision", slice(loop % 2, loop % 2 + 1))
        self.group.meet(loop, ENDED)
        return bool(decision[loop % 2])

    def state_dict(self, loop: int) -> dict[str, Any]:
        """Return the states of all environments before rollout `loop`, and its other data.

        Valid after the previous rollout was learnt from, and until `loop` has been. Every member
        returns the state of all members.
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
            # The weights that act in that rollout, if they differ from the learnt ones.
            "actor": dict(self._actor.weights.state_dict()) if self.agent.cfg.lag else {},
        }

    def episodes_noted(self, loops: int) -> NDArray[np.float64]:
        """Return the state of the episode log after `loops` rollouts: the last, or the one before.

        It outlives the first worker, so that a replacement also counts each episode once.
        """
        noted: NDArray[np.float64] = self.team["episode_log"][loops % 2]
        return noted

    def note_episodes(self, loops: int, state: NDArray[np.float64]) -> None:
        """Keep the state of the episode log after `loops` rollouts."""
        self.team["episode_log"][loops % 2] = state
        self.team.show("episode_log", loops % 2)

    def metrics_noted(self, loops: int) -> MetricSums:
        """Return the env's own metrics that were not written yet after `loops` rollouts."""
        return metric_table.read(self.team["metric_log"][loops % 2])

    def note_metrics(self, loops: int, sums: MetricSums) -> None:
        """Keep the env's own metrics that were not written yet after `loops` rollouts."""
        rows = metric_table.write(self.team["metric_log"][loops % 2], sums)
        self.team.show("metric_log", (loops % 2, slice(rows)))

    def close(self) -> None:
        """Close the environments."""
        if self._ahead is not None:  # the run has failed
            with contextlib.suppress(Exception):
                self._ahead.join()
        self._envs.close()

    def _act_like_before(self, loop: int) -> None:
        """Let the next rollout be collected with the weights from before this loop."""
        if self.agent.train_iter == self.pace.first_update:
            self._actor.weights.copy_from(self.agent.weights)
            # All members write the same value, for one that is replaced during this loop.
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
        if "episodes" in saved:  # missing in checkpoints of earlier versions
            self.note_episodes(self.rollout, saved["episodes"])
        standing = self.rollouts.standing
        page = standing.page(self.rollout)
        self._envs.load_state_dict(columns_of(saved["envs"], self._columns))
        standing.write(self.rollout, self._envs, self._columns)
        standing.extra[page, self._columns] = saved["running_returns"][self._columns]
        standing.state[page, self._columns] = saved["memory"][self._columns]
        self._forget_lost_episodes(page)
        self.rollouts.show_standing(self.rollout)
        self.team.show("stand_ring", (slice(None), self._columns))  # whole episodes, only here
        self.rollouts.remember(self.rollout)
        self.group.begin(self.rollout, saved["reward_scale"])
        self._collected = self.rollout - 1
        if saved["actor"]:
            self._actor.load_parts({"policy": saved["actor"]})

    def _forget_lost_episodes(self, page: int) -> None:
        """Clear the sum of rewards of episodes that begin here: some could not be restored."""
        begins = np.equal(self._envs.books().lengths, 0)
        self.rollouts.standing.extra[page, self._columns][begins] = 0.0

    def _take_over(self) -> None:
        """Continue where the previous incarnation stopped.

        Without a lag, rollout `loop` exists if the previous incarnation arrived at COLLECTED. With
        a lag, the first point of a loop means that its rollout exists, and the last point that the
        next rollout exists, too.
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
        """Restore the environments to their states before rollout `loop`."""
        template = self._envs.state_dict()
        state = self.rollouts.standing.state_of(loop, self._columns, template)
        self._envs.load_state_dict(state)
        self._forget_lost_episodes(self.rollouts.standing.page(loop))
        self.rollouts.remember(loop)

    def _arrive_from_elsewhere(self) -> None:
        """Prepare this worker to continue where a worker on another machine stopped."""
        if self.agent.cfg.lag:
            raise TaskError(
                "a worker that collects ahead cannot continue on another machine",
                "the steps in progress on its machine are lost",
                "--lag 0, or --resume, which continues from the last checkpoint",
            )
        if self.is_first:  # by the clock of this machine
            self.team["started"][0] = self.started

    def _collect_again(self, loop: int) -> None:
        """Collect a rollout again that was lost with the worker on another machine."""
        self.group.restore_start(loop)
        self.group.note_start(loop)
        self._stand_at(loop)
        books = [self.team[name][loop % 2, self._slots] for name in ("books", "env_metrics")]
        known = [each.copy() for each in books]
        self.rollouts.collect(loop)
        # Environments that cannot be restored now behave differently; all members have used the old
        # books.
        for book, before in zip(books, known, strict=True):
            book[:] = before
        self._collected = loop
