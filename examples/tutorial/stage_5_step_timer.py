"""Stage 5: one more line shows where the time of the loop goes."""

from corridor import MAX_ITERATIONS
from muster import StepTimer, Task
from stage_4_context import make_middleware


def main() -> None:
    with Task() as task:
        task.use_step_wrapper(StepTimer(print_per_step=100))
        for middleware in make_middleware():
            task.use(middleware)
        task.run(max_step=MAX_ITERATIONS)


if __name__ == "__main__":
    main()
