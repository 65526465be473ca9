"""Stage 2: the body of the loop becomes one middleware, and the task does the looping."""

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


def training(
    learner: Learner,
    collector: Collector,
    evaluator: Evaluator,
    replay_buffer: ReplayBuffer,
    epsilon_greedy: Callable[[float], float],
) -> Middleware:
    """Make the middleware: a function of ctx that knows its objects. A class would do as well."""

    def _training(ctx: Context) -> None:
        if evaluator.should_eval(learner.train_iter):
            stop, _ = evaluator.eval(learner.save_checkpoint, learner.train_iter, collector.envstep)
            if stop:
                ctx.finish = True  # where the loop had a break
                return
        eps = epsilon_greedy(collector.envstep)
        new_data = collector.collect(train_iter=learner.train_iter, policy_kwargs={"eps": eps})
        replay_buffer.push(new_data, cur_collector_envstep=collector.envstep)
        for _ in range(UPDATES_PER_COLLECT):
            batch_size = learner.policy.get_attribute("batch_size")
            train_data = replay_buffer.sample(batch_size, learner.train_iter)
            if train_data is not None:
                learner.train(train_data, collector.envstep)

    return _training


def main() -> None:
    policy = QTable()
    learner, collector, evaluator = Learner(policy), Collector(policy), Evaluator(policy)
    replay_buffer = ReplayBuffer()
    epsilon_greedy = get_epsilon_greedy_fn(1.0, 0.1, 500, "linear")

    with Task() as task:
        task.use(training(learner, collector, evaluator, replay_buffer, epsilon_greedy))
        task.run(max_step=MAX_ITERATIONS)


if __name__ == "__main__":
    main()
