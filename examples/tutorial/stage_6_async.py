"""Stage 6: the middleware of a loop run at the same time, each on a thread, and meet at its end.

`evaluate` overlaps with the others. `train` needs what `collect` brings, and says so with `after`;
without it the two would touch the replay buffer at once.
"""

from corridor import MAX_ITERATIONS
from muster import StepTimer, Task
from stage_4_context import make_middleware


def main() -> None:
    evaluate, collect, train = make_middleware()
    with Task(async_mode=True) as task:
        task.use_step_wrapper(StepTimer(print_per_step=100))
        task.use(evaluate)
        task.use(collect)
        task.use(train, after=collect)
        task.run(max_step=MAX_ITERATIONS)


if __name__ == "__main__":
    main()
