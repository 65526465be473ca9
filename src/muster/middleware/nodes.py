"""Middleware of programs on several nodes: exchange experience, weights and evaluations."""

from collections.abc import Callable, Generator
from typing import Any, Protocol

import numpy as np

from muster.data.faces import Receives, Takes
from muster.data.shard import ReplayShard
from muster.envs.step_metrics import added
from muster.flow import ParameterServer
from muster.framework import Context, Middleware
from muster.workers import Collector
from muster.workers.apart import EvaluationApart, Judged
from muster.workers.episode_log import EndedEpisodes


class TakesWeights(Protocol):
    """A policy whose weights can be replaced."""

    def load_policy(self, weights: Any) -> None:
        """Act on these weights from now on."""


def receive(buffer: Receives, samples: int, steps_before: int = 0) -> Middleware:
    """Receive experience of other nodes until enough may be sampled for one loop.

    Sets `ctx.env_step`, `ctx.episodes`, and metrics of the lag of the experience.

    Args:
        buffer: Receives the experience; lives on this node, or in shards that this node directs.
        samples: Transitions that the loop will sample.
        steps_before: Environment steps whose transitions the buffer never received.
    """

    def _receive(ctx: Context) -> None:
        ctx.keep("env_step", "train_iter")
        buffer.receive(samples)
        ctx.env_step = steps_before + buffer.inserted
        feed = buffer.feed
        assert feed is not None
        metrics = ctx.setdefault("metrics", {})
        episodes = [each for note in feed.notes for each in note["episodes"]]
        own = added(note["metrics"] for note in feed.notes if "metrics" in note)
        ctx.episodes = EndedEpisodes.of(episodes, own)
        if feed.notes:
            metrics["collect/epsilon"] = feed.notes[-1]["epsilon"]
        ctx.versions = list(feed.versions)
        feed.notes.clear()
        feed.versions.clear()

    return _receive


def serve(shard: ReplayShard) -> Middleware:
    """Act as a shard of replay: store and read as the learner requests."""

    def _serve(ctx: Context) -> None:
        shard.serve()

    return _serve


def push_weights(server: ParameterServer, weights: Callable[[], Any]) -> Middleware:
    """Send new weights to the actors after each loop's updates, and record how old theirs were.

    Args:
        server: The server, whose home is this node.
        weights: Returns the weights to send.
    """

    def _push_weights(ctx: Context) -> None:
        lags = [server.version - version for version in ctx.get("versions", ())]
        if lags:
            ctx.metrics["lag/min"] = min(lags)
            ctx.metrics["lag/mean"] = sum(lags) / len(lags)
            ctx.metrics["lag/max"] = max(lags)
        server.push(weights(), env_step=ctx.env_step, train_iter=ctx.train_iter)

    return _push_weights


def act(
    collector: Collector,
    buffer: Takes,
    server: ParameterServer,
    actor: TakesWeights,
    epsilon: Callable[[float], Any],
) -> Middleware:
    """Act with the newest weights that have arrived, and send the experience.

    Args:
        collector: Steps the environments.
        buffer: Sends the experience to where it is stored.
        server: Provides the weights.
        actor: The collector's policy.
        epsilon: Maps environment steps of all nodes to the probability of a random action: one
            number, or one for each environment of this node.
    """
    current = server.pull()

    def _act(ctx: Context) -> None:
        nonlocal current
        newer = server.pull(newer_than=current.version if current else None, timeout=0)
        if newer is not None or ctx.total_step == 0:
            current = newer or current
            if current is None:  # the run ended before it began
                return
            actor.load_policy(current.values)
        assert current is not None
        eps = epsilon(current.info["env_step"])
        data = collector.collect(policy_kwargs={"eps": eps})
        episodes = [(each.return_, each.length) for each in collector.take_episodes()]
        note: dict[str, Any] = {"epsilon": float(np.mean(eps)), "episodes": episodes}
        if own := collector.take_metrics():
            note["metrics"] = own
        buffer.push(data, version=current.version, note=note)

    return _act


def judge(
    apart: EvaluationApart,
    every: int,
    ask: Callable[[Context], tuple[Any, Any, float]],
    judged: Callable[[Context, Judged], None],
) -> Middleware:
    """Request evaluations of the policy on another node, at intervals and at the end.

    Args:
        apart: Sends the questions and receives the answers.
        every: Environment steps between questions; 0 for only at the end.
        ask: Returns the weights to evaluate, the state to keep for the answer, and the time limit
            of the evaluation in seconds.
        judged: Called for each answer; may set `ctx.finish`.
    """

    def _judge(ctx: Context) -> Generator[None, None, None]:
        before = ctx.get("env_step", 0)
        yield
        # A user who sends a signal wants to leave now.
        at_end = ctx.finish and ctx.get("stopped_by") != "signal"
        number = None
        if at_end or (every > 0 and ctx.env_step // every > before // every):
            number = apart.ask(*ask(ctx))
        for each in apart.answers(number if at_end else None):
            judged(ctx, each)

    return _judge
