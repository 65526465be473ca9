"""`LearnerGroup`: learners that take the same steps, each with the gradients of its own slots.

    prepare    reward scale from all slots' books -> advantages of own slots -> their moments
    learn      for each minibatch: gradient rows of own slots -> barrier -> sum rows 0..S-1 -> Adam

Every member has all weights and applies every update, so nothing has to be sent back. After each
update a member writes its state to one of two pages of shared memory. So a killed member leaves one
complete page behind, from which its replacement continues.
"""

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from muster.algos.in_step import InStepAgent
from muster.data.slots import Fields, SlotPlan, slots_in
from muster.errors import TaskError
from muster.flow import Team
from muster.nets.flat import add_rows
from muster.rl_utils.moments import NOTHING, Moments
from muster.seeding import generator
from muster.workers.episode_log import EndedEpisodes
from muster.workers.pace import MINIBATCH, PREPARED, Pace
from muster.workers.rollout_rows import rollout_of
from muster.workers.rollouts import OBS, REWARD_M2, REWARD_MEAN, ended_in

Array = NDArray[Any]

_NORM, _COUNT, _WATCHED = range(-3, 0)
"""The last entries of the sums: gradient norms, the number of updates in them, and the watched
metric, which covers this epoch only. The others are the agent's `stats`."""
_SMALL = 1e-8


class LearnerGroup:
    """One member of the group.

    Args:
        agent: The agent that learns, with the same weights on every member.
        plan: Layout of the slots.
        team: Holds the shared arrays.
        pace: Position of this member in its loop.
        mine: The slots of this member.
        seed: Seed of the run.
    """

    def __init__(
        self, agent: InStepAgent, plan: SlotPlan, team: Team, pace: Pace, mine: range, seed: int
    ) -> None:
        self.learn_seconds = 0.0
        """Seconds spent on gradients and updates."""
        self.wait_seconds = 0.0
        """Seconds spent on waiting for other members."""
        self._agent = agent
        self._plan = plan
        self._pace = pace
        self._mine = mine
        self._seed = seed
        self._team = team
        self._own = slice(mine.start, mine.stop)
        self._slots = slots_in(plan, team)
        self._rollouts = [rollout_of(slots) for slots in self._slots]
        self._books, self._advantages = team["books"], team["advantage_books"]
        self._grads, self._stats = team["grads"], team["stats"]
        self._reward, self._norm = team["reward_scale"], team["obs_norm"]
        member = team.index
        self._weights, self._sums = team["weights"][:, member], team["sums"][:, member]
        self._versions, self._version = team["version"], team["version"][member]
        self._start: Array = team["start"]
        self._total = np.empty(agent.weights.vector.size, np.float32)
        # A recurrent network learns from whole sequences, so each row is a sequence number.
        rows = np.arange(plan.steps // plan.chunk * plan.envs).reshape(-1, plan.envs)
        self._rows = {slot: rows[:, plan.columns(slot)].reshape(-1) for slot in mine}

    @staticmethod
    def fields(agent: InStepAgent, plan: SlotPlan, members: int) -> Fields:
        """Return the shared arrays that a group needs."""
        size = agent.weights.vector.size
        return {
            "advantage_books": ((2, plan.slots, 2), np.float64),
            "grads": ((2, plan.slots, size), np.float32),
            "stats": ((2, plan.slots, len(agent.stats)), np.float64),
            "reward_scale": ((2, 3), np.float64),
            "obs_norm": ((2, len(_known(agent))), np.float64),
            # Before the weights, so that in a copy of all fields the version is never newer.
            "version": ((members, 8), np.int64),
            "weights": ((2, members, 3, size), np.float32),
            "sums": ((2, members, len(_no_sums(agent))), np.float64),
            "start": ((2, size), np.float32),
        }

    # ---- beginning, or taking over

    def begin(self, loop: int, reward_scale: Array | None = None) -> None:
        """Publish the state of this member before rollout `loop`.

        Args:
            loop: The first rollout of this run.
            reward_scale: Of a resumed run: count, mean and m2 of its returns.
        """
        self._reward[loop % 2] = 0.0 if reward_scale is None else reward_scale
        self._norm[loop % 2] = _known(self._agent)
        self._show(_no_sums(self._agent))

    def restore(self, loop: int) -> None:
        """Load the state that the previous incarnation had reached in rollout `loop`."""
        if self._team.moved:
            self._become_like_others(self._pace.updates_before)
        else:
            self._become(self._team.index, int(self._version[0]))
        if self._agent.normalizer is not None:
            self._agent.normalizer.load(self._norm[loop % 2])

    def restore_start(self, loop: int) -> None:
        """Load the state of all members at the start of rollout `loop`, to collect it again."""
        updates = self._pace.first_update
        member = self._member_after(updates, or_more=0)
        if member is None:  # the others have moved on, and have noted their start
            self._agent.weights.load(self._start[loop % 2])
        else:
            self._become(member, updates)
        if self._agent.normalizer is not None:
            self._agent.normalizer.load(self._norm[loop % 2])

    def note_start(self, loop: int) -> None:
        """Note the weights at the start of a rollout, if a member may move to another machine."""
        if self._team.is_spread:
            self._start[loop % 2] = self._agent.weights.vector

    def _become(self, member: int, updates: int) -> None:
        """Load the state of a member after `updates` updates: its latest or the one before."""
        agent = self._agent
        weights, mean, square = self._team["weights"][updates % 2, member]
        agent.weights.load(weights)
        agent.adam.load_state_dict({"mean": mean, "square": square, "steps": updates})
        agent.train_iter = updates

    def _become_like_others(self, updates: int) -> None:
        """Load the common state of all members after `updates` updates; this one does not have it.

        Other members cannot be more than one update ahead, because they wait for this member. If
        the state that is found is one update behind, apply that update here.
        """
        if not updates:  # the agent's initial state, or the state at the start of the rollout
            self._show(_no_sums(self._agent))
            return
        member, behind = self._member_after(updates), 0
        if member is None:
            member, behind = self._member_after(updates - 1), 1
        if member is None:
            raise TaskError(
                f"no member of the team has update {updates}",
                "the machines that had it are lost",
                "--resume, which continues from the last checkpoint",
            )
        self._become(member, updates - behind)
        sums = self._team["sums"][(updates - behind) % 2, member].copy()
        if behind:
            self._team.wait(behind=1)  # afterwards all rows of that update have arrived
            if updates - 1 == self._pace.first_update:
                sums[:] = 0
            in_epoch = (updates - 1 - self._pace.first_update) % self._agent.cfg.passes()[1]
            self._apply((updates - 1) % 2, sums, begins_epoch=in_epoch == 0)
        else:
            self._show(sums)

    def _member_after(self, updates: int, or_more: int = 1) -> int | None:
        """Return a member, on this machine now or earlier, whose pages still hold an update.

        Args:
            updates: Number of the update.
            or_more: How many further updates the member may have applied.
        """
        for member, (version, is_there) in enumerate(self._versions[:, :2]):
            if is_there and updates <= version <= updates + or_more:
                return member
        return None

    def reward_scale(self, loop: int) -> Array:
        """Return count, mean and m2 of the returns before rollout `loop`."""
        scale: Array = self._reward[loop % 2].copy()
        return scale

    # ---- one rollout

    def prepare(self, loop: int) -> None:
        """Compute advantages and targets of own slots, and the moments that normalise them."""
        cfg, plan, page = self._agent.cfg, self._plan, loop % 2
        slots = self._slots[loop % plan.buffers]
        reward = slots.reward
        if cfg.normalize_reward:
            reward = reward * np.float32(1 / self._reward_std(loop))
        for slot in self._mine:
            columns = plan.columns(slot)
            self._agent.prepare(slots, reward, columns)
            found = Moments.of(slots.advantage[:, columns].reshape(-1))
            self._advantages[page, slot] = found.mean, found.m2
        self._team.show("advantage_books", (page, self._own))
        self.meet(loop, PREPARED)
        if self._agent.standardizes:
            count = plan.steps * plan.width
            all_slots = NOTHING
            for mean, m2 in self._advantages[page]:
                all_slots = all_slots.merged(Moments(count, mean, m2))
            for slot in self._mine:
                advantage = slots.advantage[:, plan.columns(slot)]
                advantage -= np.float32(all_slots.mean)
                advantage *= np.float32(1 / (all_slots.std + _SMALL))

    def learn(self, loop: int) -> dict[str, float]:
        """Learn from rollout `loop`, and return the means of the agent's `stats`."""
        agent, cfg, plan = self._agent, self._agent.cfg, self._plan
        env_step = loop * plan.steps * plan.envs
        agent.adam.lr = agent.lr(env_step)
        epochs, minibatches = cfg.passes()
        rows_of_minibatch = plan.steps * plan.envs // minibatches
        terms = agent.terms(env_step, rows_of_minibatch)
        rollout = self._rollouts[loop % plan.buffers]
        sums = _no_sums(self._agent)
        update = self._pace.first_update
        if agent.train_iter > update:  # applied by the previous incarnation
            sums = self._sums[agent.train_iter % 2].copy()
        shuffled = np.stack([self._shuffled(slot, loop) for slot in self._mine])
        for epoch in range(epochs):
            for part in range(minibatches):
                number, page = epoch * minibatches + part, update % 2
                if self._pace.is_new(loop, MINIBATCH, number):
                    started = time.perf_counter()
                    grads, stats = self._grads[page, self._own], self._stats[page, self._own]
                    agent.gradients(rollout, shuffled[:, epoch, part], terms, grads, stats)
                    self._team.show("grads", (page, self._own))
                    self._team.show("stats", (page, self._own))
                    self.learn_seconds += time.perf_counter() - started
                self.meet(loop, MINIBATCH, number)
                update += 1
                if agent.train_iter < update:
                    self._apply(page, sums, begins_epoch=part == 0)
            is_last = agent.train_iter == update  # else the previous incarnation continued
            if is_last and agent.learnt_enough(sums[_WATCHED] / minibatches):
                break
        self._learn_norm(loop)
        count = sums[_COUNT]
        means = dict(zip(agent.stats, (sums[:_NORM] / count).tolist(), strict=True))
        return {**means, "grad_norm": sums[_NORM] / count, "updates": count, "lr": agent.adam.lr}

    def episodes(self, loop: int) -> EndedEpisodes:
        """Return the episodes that ended in a rollout, slot by slot."""
        return ended_in(self._team, loop)

    # ---- parts of it

    def _apply(self, page: int, sums: Array, begins_epoch: bool) -> None:
        """Apply the sum of all slots' gradients as one update."""
        started = time.perf_counter()
        total = self._total
        add_rows(self._grads[page], total)  # in the order of slots on every member
        stats = self._stats[page].sum(axis=0)
        sums[:_NORM] += stats
        watched = stats[self._agent.stats.index(self._agent.watched)]
        sums[_WATCHED] = watched + (0.0 if begins_epoch else sums[_WATCHED])
        sums[_NORM] += self._agent.step(total)
        sums[_COUNT] += 1
        self._show(sums)
        self.learn_seconds += time.perf_counter() - started

    def _show(self, sums: Array) -> None:
        """Write this member's state to the page that is not valid, and make that page valid."""
        version = self._agent.train_iter
        if not self._team.is_alone:  # an only member is never replaced
            page, adam = self._weights[version % 2], self._agent.adam
            page[0], page[1], page[2] = self._agent.weights.vector, adam.mean, adam.square
        self._sums[version % 2] = sums
        self._version[:2] = version, True

    def meet(self, loop: int, point: int, number: int = 0) -> None:
        """Wait until every member has reached a point."""
        started = time.perf_counter()
        self._pace.meet(loop, point, number, self._agent.train_iter)
        self.wait_seconds += time.perf_counter() - started

    def _shuffled(self, slot: int, loop: int) -> Array:
        """Return a slot's rows in a new order for each epoch, [epochs, minibatches, rows]."""
        rows = self._rows[slot]
        epochs, minibatches = self._agent.cfg.passes()
        rng = generator(self._seed, "slot", slot, "order", loop)
        orders = np.stack([rows[rng.permutation(len(rows))] for _ in range(epochs)])
        return orders.reshape(epochs, minibatches, -1)

    def _reward_std(self, loop: int) -> float:
        """Include this rollout's returns, and return the divisor of rewards."""
        count, mean, m2 = self._reward[loop % 2]
        known = Moments(count, mean, m2)
        size = self._plan.steps * self._plan.width
        for book in self._books[loop % 2]:
            known = known.merged(Moments(size, book[REWARD_MEAN], book[REWARD_M2]))
        self._reward[(loop + 1) % 2] = known.count, known.mean, known.m2
        return float(np.sqrt(known.m2 / known.count + _SMALL))

    def _learn_norm(self, loop: int) -> None:
        """Update the normaliser with the observations of this rollout, for the next one."""
        agent, rows = self._agent, self._plan.steps * self._plan.width
        norms = [] if agent.normalizer is None else agent.normalizer.norms
        for book in self._books[loop % 2]:
            place = OBS
            for norm in norms:
                width = norm.mean.numel()
                norm.merge(rows, book[place : place + width], book[place + width :][:width])
                place += 2 * width
        self._norm[(loop + 1) % 2] = _known(agent)


def _known(agent: InStepAgent) -> Array:
    """Return the statistics of an agent's normaliser, as one vector."""
    return np.zeros(0) if agent.normalizer is None else agent.normalizer.known()


def _no_sums(agent: InStepAgent) -> Array:
    """Return sums over zero updates."""
    return np.zeros(len(agent.stats) + 3)
