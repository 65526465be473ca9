"""Stage 1: a training loop as everybody writes it first. Nothing of muster's loop in it yet."""

from corridor import (
    MAX_ITERATIONS,
    UPDATES_PER_COLLECT,
    Collector,
    Evaluator,
    Learner,
    QTable,
    ReplayBuffer,
)
from muster.rl_utils import get_epsilon_greedy_fn


def main() -> None:
    policy = QTable()
    learner, collector, evaluator = Learner(policy), Collector(policy), Evaluator(policy)
    replay_buffer = ReplayBuffer()
    epsilon_greedy = get_epsilon_greedy_fn(1.0, 0.1, 500, "linear")

    for _ in range(MAX_ITERATIONS):
        if evaluator.should_eval(learner.train_iter):
            stop, _ = evaluator.eval(learner.save_checkpoint, learner.train_iter, collector.envstep)
            if stop:
                break
        eps = epsilon_greedy(collector.envstep)
        new_data = collector.collect(train_iter=learner.train_iter, policy_kwargs={"eps": eps})
        replay_buffer.push(new_data, cur_collector_envstep=collector.envstep)
        for _ in range(UPDATES_PER_COLLECT):
            batch_size = learner.policy.get_attribute("batch_size")
            train_data = replay_buffer.sample(batch_size, learner.train_iter)
            if train_data is not None:
                learner.train(train_data, collector.envstep)


if __name__ == "__main__":
    main()
