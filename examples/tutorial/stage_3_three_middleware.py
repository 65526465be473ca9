"""Stage 3: one middleware for each thing that happens. They still know each other's objects."""

from collections.abc import Callable

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


def evaluate(learner: Learner, collector: Collector, evaluator: Evaluator) -> Middleware:
    """Evaluate now and then, and stop when the corridor is solved."""

    def _evaluate(ctx: Context) -> None:
        if evaluator.should_eval(learner.train_iter):
            stop, _ = evaluator.eval(learner.save_checkpoint, learner.train_iter, collector.envstep)
            if stop:
                ctx.finish = True  # the rest of this loop still runs

    return _evaluate


def collect(
    epsilon_greedy: Callable[[float], float],
    learner: Learner,
    collector: Collector,
    replay_buffer: ReplayBuffer,
) -> Middleware:
    """Take some steps and keep them."""

    def _collect(ctx: Context) -> None:
        eps = epsilon_greedy(collector.envstep)
        new_data = collector.collect(train_iter=learner.train_iter, policy_kwargs={"eps": eps})
        replay_buffer.push(new_data, cur_collector_envstep=collector.envstep)

    return _collect


def train(learner: Learner, collector: Collector, replay_buffer: ReplayBuffer) -> Middleware:
    """Learn from what was kept."""

    def _train(ctx: Context) -> None:
        for _ in range(UPDATES_PER_COLLECT):
            batch_size = learner.policy.get_attribute("batch_size")
            train_data = replay_buffer.sample(batch_size, learner.train_iter)
            if train_data is not None:
                learner.train(train_data, collector.envstep)

    return _train


def main() -> None:
    policy = QTable()
    learner, collector, evaluator = Learner(policy), Collector(policy), Evaluator(policy)
    replay_buffer = ReplayBuffer()
    epsilon_greedy = get_epsilon_greedy_fn(1.0, 0.1, 500, "linear")

    with Task() as task:
        task.use(evaluate(learner, collector, evaluator))
        task.use(collect(epsilon_greedy, learner, collector, replay_buffer))
        task.use(train(learner, collector, replay_buffer))
        task.run(max_step=MAX_ITERATIONS)


if __name__ == "__main__":
    main()
