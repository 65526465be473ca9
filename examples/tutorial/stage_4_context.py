"""Stage 4: ctx carries what one middleware tells another, so each knows its own objects only.

Two things to see. `ctx.keep` carries a key over to the next loop: without it `evaluate`, which
comes first, would see train_iter == -1 for ever. And `train` is a generator: what stands after its
`yield` runs on the way back, when everything else of the loop is done, and there `ctx.finish` is
true in the last loop however it came to be the last. So the final checkpoint is never missed.
"""

from collections.abc import Callable, Generator

from corridor import (
    MAX_ITERATIONS,
    UPDATES_PER_COLLECT,
    Collector,
    Evaluator,
    Learner,
    QTable,
    ReplayBuffer,
)
from muster import Context, Middleware, Task
from muster.rl_utils import get_epsilon_greedy_fn


def evaluate(evaluator: Evaluator) -> Middleware:
    """Evaluate now and then, and stop when the corridor is solved."""

    def _evaluate(ctx: Context) -> None:
        ctx.setdefault("envstep", 0)
        ctx.setdefault("train_iter", 0)
        if evaluator.should_eval(ctx.train_iter):
            stop, _ = evaluator.eval(None, ctx.train_iter, ctx.envstep)
            if stop:
                ctx.finish = True

    return _evaluate


def collect(
    epsilon_greedy: Callable[[float], float], collector: Collector, replay_buffer: ReplayBuffer
) -> Middleware:
    """Take some steps and keep them."""

    def _collect(ctx: Context) -> None:
        ctx.keep("envstep")
        ctx.setdefault("train_iter", 0)
        eps = epsilon_greedy(collector.envstep)
        new_data = collector.collect(train_iter=ctx.train_iter, policy_kwargs={"eps": eps})
        replay_buffer.push(new_data, cur_collector_envstep=collector.envstep)
        ctx.envstep = collector.envstep

    return _collect


def train(learner: Learner, replay_buffer: ReplayBuffer) -> Middleware:
    """Learn from what was kept, and save in the end."""

    def _train(ctx: Context) -> Generator[None, None, None]:
        ctx.keep("train_iter")
        ctx.setdefault("envstep", 0)
        for _ in range(UPDATES_PER_COLLECT):
            batch_size = learner.policy.get_attribute("batch_size")
            train_data = replay_buffer.sample(batch_size, learner.train_iter)
            if train_data is not None:
                learner.train(train_data, ctx.envstep)
        ctx.train_iter = learner.train_iter
        yield
        if ctx.finish:
            learner.save_checkpoint()

    return _train


def make_middleware() -> tuple[Middleware, Middleware, Middleware]:
    """Build the objects and return `evaluate`, `collect` and `train` around them."""
    policy = QTable()
    replay_buffer = ReplayBuffer()
    epsilon_greedy = get_epsilon_greedy_fn(1.0, 0.1, 500, "linear")
    return (
        evaluate(Evaluator(policy)),
        collect(epsilon_greedy, Collector(policy), replay_buffer),
        train(Learner(policy), replay_buffer),
    )


def main() -> None:
    with Task() as task:
        for middleware in make_middleware():
            task.use(middleware)
        task.run(max_step=MAX_ITERATIONS)


if __name__ == "__main__":
    main()
