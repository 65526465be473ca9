"""`RunGate`: the middleware at which a run waits until its driver, a `Trainer`, asks for more.

    the loop reaches its limit -> Arrived, to the driver -> wait
    from the driver:  GoOn(until)  ->  loops up to that environment step
                      Ask(...)     ->  Answered: a checkpoint, or the weights of the policy
                      Close()      ->  this loop is the last: it is saved, and the run ends

The gate waits at the end of a loop, after evaluation and before metrics and checkpoint, so a run
that is closed there ends with exactly the policy that the driver has seen. A gate in a process that
was replaced arrives again, and the driver repeats what it wants.
"""

import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from muster.errors import TaskError
from muster.flow.wire import pack
from muster.framework import Context, Middleware
from muster.framework.driver import DriverLink
from muster.framework.node import current_node
from muster.recipes.graceful import StopRequest
from muster.recipes.job import Job
from muster.workers.episode_log import EpisodeLog

CLOSED = "closed"
"""`stopped_by` of a run whose driver has closed it."""
_TURN_S = 0.25


@dataclass(frozen=True, slots=True)
class Arrived:
    """The run waits at its gate, or has ended; what happened since the last arrival."""

    env_step: int
    train_iter: int
    next_step: int
    """The environment step that ends the next iteration."""
    metrics: dict[str, float] = field(default_factory=dict)
    """The newest value of each metric since the last arrival."""
    eval_return: float | None = None
    is_last: bool = False
    """Whether the run ends with this loop, and does not wait."""


@dataclass(frozen=True, slots=True)
class GoOn:
    """Go on until this environment step."""

    until: int


@dataclass(frozen=True, slots=True)
class Close:
    """End the run with this loop."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Save a checkpoint, or send the weights of the policy."""

    number: int
    """Identifies the question: an answer may come after its driver was interrupted."""
    what: Literal["checkpoint", "weights"]


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer to a question: the path of a checkpoint, or packed weights."""

    number: int
    value: Any


class Post(Protocol):
    """The run's end of the link to its driver."""

    def say(self, message: object) -> None:
        """Send the driver a message."""

    def hear(self, wait: bool) -> object | None:
        """Return the driver's next message; None if there is none, or if the run has to end."""


class _OwnPost:
    """The link of a run in the driver's own process."""

    def __init__(self, link: DriverLink, stop: StopRequest) -> None:
        self._link = link
        self._stop = stop
        self._heard: list[object] = []

    def say(self, message: object) -> None:
        self._link.deliver(message)

    def hear(self, wait: bool) -> object | None:
        while not self._heard:
            self._heard = self._link.take(_TURN_S if wait else 0.0)
            if not wait or self._stop.is_requested():
                break
        return self._heard.pop(0) if self._heard else None


class _NodePost:
    """The link of a node, over its pipe to the process that started it."""

    def say(self, message: object) -> None:
        node = current_node()
        assert node is not None
        node.tell_driver(message)

    def hear(self, wait: bool) -> object | None:
        node = current_node()
        assert node is not None
        return node.hear_driver(wait)


def post_of(job: Job, stop: StopRequest) -> Post:
    """Return the link of this process to the driver of its run."""
    return _NodePost() if job.driver is None else _OwnPost(job.driver, stop)


class RunGate:
    """Lets a run go on as far as its driver asks.

    Args:
        post: The link to the driver.
        iteration: Environment steps of one iteration, which ends at a multiple of them.
        save: Saves a checkpoint of this loop, and returns its path.
        weights: Returns the weights of the policy.
        episodes: The episodes before the first loop, of a resumed run.
        stop: Tells whether a signal has asked the run to end.
    """

    def __init__(
        self,
        post: Post,
        iteration: int,
        save: Callable[[Context], Path],
        weights: Callable[[], Mapping[str, Any]],
        episodes: EpisodeLog,
        stop: StopRequest,
    ) -> None:
        self.paused = 0.0
        """Seconds spent on waiting for the driver."""
        self._post = post
        self._iteration = iteration
        self._save = save
        self._weights = weights
        self._resumed = episodes
        self._stop = stop
        self._episodes: EpisodeLog | None = None
        self._metrics: dict[str, float] = {}
        self._eval_return: float | None = None
        self._until = 0

    def middleware(self) -> Middleware:
        """Return the gate as middleware."""

        def _gate(ctx: Context) -> Generator[None, None, None]:
            if self._episodes is None:
                self._begin(ctx.get("env_step", 0))
            yield
            self._note(ctx)
            message = self._post.hear(wait=False)
            if message is not None or ctx.finish or ctx.env_step >= self._until:
                self._stand(ctx, message)

        return _gate

    def _begin(self, env_step: int) -> None:
        self._episodes = EpisodeLog()
        self._episodes.load_state_dict(self._resumed.state_dict())
        self._episodes.take()  # those from before were of an earlier iteration
        self._until = self._end_of_iteration(env_step)

    def _end_of_iteration(self, env_step: int) -> int:
        return (env_step // self._iteration + 1) * self._iteration

    def _note(self, ctx: Context) -> None:
        assert self._episodes is not None
        if "episodes" in ctx:
            self._episodes.add(ctx.episodes)
        self._metrics.update(ctx.get("metrics", {}))
        self._metrics.update(ctx.get("logged", {}))
        if "eval_return" in ctx:
            self._eval_return = float(ctx.eval_return)

    def _stand(self, ctx: Context, message: object | None) -> None:
        """Report, and obey the driver until this loop may end."""
        if ctx.finish:
            self._post.say(self._arrived(ctx))
            return
        if ctx.env_step >= self._until:
            self._post.say(self._arrived(ctx))
        since = time.monotonic()
        while not self._obey(ctx, message):
            message = self._post.hear(wait=True)
            if message is None:  # a signal, or the failure of another node
                ctx.finish = True
                if self._stop.is_requested():
                    ctx.stopped_by = "signal"
                break
        self.paused += time.monotonic() - since

    def _obey(self, ctx: Context, message: object | None) -> bool:
        """Carry out a message; return whether the loop may end."""
        if isinstance(message, Close):
            ctx.finish, ctx.stopped_by = True, CLOSED
            return True
        if isinstance(message, GoOn):
            self._until = message.until
            if ctx.env_step < self._until:
                return True
            self._post.say(self._arrived(ctx))
        elif isinstance(message, Ask):
            self._post.say(Answered(message.number, self._answer(ctx, message)))
            return bool(ctx.env_step < self._until)  # asked during an iteration: it goes on
        elif message is not None:
            raise TaskError(
                f"the driver of this run said {message!r:.80}",
                "it is no message that a gate knows",
                "the same version of muster in every process",
            )
        return False

    def _answer(self, ctx: Context, question: Ask) -> Any:
        if question.what == "checkpoint":
            return str(self._save(ctx))
        packed = pack(dict(self._weights()), "the policy")
        return packed.tree, [bytes(buffer) for buffer in packed.buffers]

    def _arrived(self, ctx: Context) -> Arrived:
        """Return the report since the last one, and begin the next."""
        assert self._episodes is not None
        ended = self._episodes
        metrics = {**self._metrics, **ended.take(), **ended.window(), **ended.take_metrics()}
        found = Arrived(
            env_step=int(ctx.env_step),
            train_iter=int(ctx.train_iter),
            next_step=self._end_of_iteration(ctx.env_step),
            metrics={name: float(value) for name, value in metrics.items()},
            eval_return=self._eval_return,
            is_last=bool(ctx.finish),
        )
        self._metrics, self._eval_return = {}, None
        return found
