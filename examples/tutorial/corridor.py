"""The objects that the tutorial's programs share: a small world, and workers that learn it.

Tabular Q-learning on a corridor: start at the left end, a reward of 1 at the right end, a small
cost for each step. Everything is real (it explores, learns, is evaluated and saved), and small
enough to be read in a minute. The workers have the names and the methods of muster's own, so the
programs look like those for big networks.
"""

import json
import random
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

LENGTH = 12
LEFT, RIGHT = 0, 1
STEP_COST = 0.01
LONGEST_EPISODE = 100
BEST_RETURN = 1.0 - STEP_COST * (LENGTH - 1)

UPDATES_PER_COLLECT = 4
MAX_ITERATIONS = 2_000
CHECKPOINT = Path("runs/tutorial/q_table.json")


class Transition(NamedTuple):
    """One step in the corridor."""

    position: int
    action: int
    reward: float
    next_position: int
    terminated: bool


def step(position: int, action: int) -> Transition:
    """Move one place to the left or to the right."""
    moved = max(0, position - 1) if action == LEFT else position + 1
    terminated = moved == LENGTH - 1
    return Transition(position, action, float(terminated) - STEP_COST, moved, terminated)


@dataclass
class QTable:
    """What each action is worth at each position."""

    values: list[list[float]] = field(default_factory=lambda: [[0.0, 0.0] for _ in range(LENGTH)])
    batch_size: int = 16

    def get_attribute(self, name: str) -> int:
        """Return a setting of the policy by its name."""
        return {"batch_size": self.batch_size}[name]

    def best(self, position: int) -> int:
        """Return the better action."""
        left, right = self.values[position]
        return RIGHT if right > left else LEFT


class Collector:
    """Walks the corridor, at random with probability `eps`, a few steps at a time."""

    def __init__(self, policy: QTable, steps: int = 8, seed: int = 0) -> None:
        self.envstep = 0
        self._policy = policy
        self._steps = steps
        self._rng = random.Random(seed)
        self._position = 0
        self._age = 0

    def collect(self, train_iter: int, policy_kwargs: Mapping[str, float]) -> list[Transition]:
        """Take some steps and return them."""
        data = []
        for _ in range(self._steps):
            explore = self._rng.random() < policy_kwargs["eps"]
            action = self._rng.randrange(2) if explore else self._policy.best(self._position)
            data.append(step(self._position, action))
            self._position, self._age = data[-1].next_position, self._age + 1
            if data[-1].terminated or self._age == LONGEST_EPISODE:
                self._position = self._age = 0
        self.envstep += len(data)
        return data


class ReplayBuffer:
    """The newest transitions."""

    def __init__(self, size: int = 1_000, seed: int = 0) -> None:
        self._data: deque[Transition] = deque(maxlen=size)
        self._rng = random.Random(seed)

    def push(self, data: list[Transition], cur_collector_envstep: int) -> None:
        """Add transitions; the oldest give way."""
        self._data.extend(data)

    def sample(self, batch_size: int, train_iter: int) -> list[Transition] | None:
        """Draw a batch, or None while there is too little."""
        return self._rng.sample(self._data, batch_size) if len(self._data) >= batch_size else None


class Learner:
    """Q-learning."""

    def __init__(self, policy: QTable, lr: float = 0.2, gamma: float = 0.95) -> None:
        self.policy = policy
        self.train_iter = 0
        self._lr = lr
        self._gamma = gamma

    def train(self, data: list[Transition], envstep: int) -> None:
        """Move the values of a batch towards what was seen."""
        for position, action, reward, next_position, terminated in data:
            future = 0.0 if terminated else self._gamma * max(self.policy.values[next_position])
            error = reward + future - self.policy.values[position][action]
            self.policy.values[position][action] += self._lr * error
        self.train_iter += 1

    def save_checkpoint(self) -> None:
        """Write the table, aside and then in place: a reader never sees half of it."""
        CHECKPOINT.parent.mkdir(parents=True, exist_ok=True)
        aside = CHECKPOINT.with_suffix(".part")
        aside.write_text(json.dumps({"train_iter": self.train_iter, "values": self.policy.values}))
        aside.replace(CHECKPOINT)
        print(f"saved {CHECKPOINT}")


class Evaluator:
    """Walks the corridor greedily, every so many updates."""

    def __init__(self, policy: QTable, every: int = 20) -> None:
        self._policy = policy
        self._every = every
        self._evaluated_at = -every

    def should_eval(self, train_iter: int) -> bool:
        """Whether enough updates were made since the last evaluation."""
        return train_iter - self._evaluated_at >= self._every

    def eval(
        self, save_checkpoint: Callable[[], None] | None, train_iter: int, envstep: int
    ) -> tuple[bool, float]:
        """Return whether the corridor is solved, and the return of one episode."""
        self._evaluated_at = train_iter
        position, total = 0, 0.0
        for _ in range(LONGEST_EPISODE):
            here = step(position, self._policy.best(position))
            position, total = here.next_position, total + here.reward
            if here.terminated:
                break
        stop = total >= BEST_RETURN - 1e-9
        print(f"train_iter {train_iter:4d}  envstep {envstep:5d}  return {total:5.2f}")
        if stop and save_checkpoint is not None:
            save_checkpoint()
        return stop, total
