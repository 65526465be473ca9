"""PPO as a program of your own: the same code in one process and on several, the same policy.

    python examples/ppo_program.py            0 workers, then 2: prints the same hash twice

`muster/recipes/in_step.py` is built from the same parts, with the rest of `muster train ppo`:
evaluation, run directory, progress.
"""

from muster import Context, Parallel, Task, middleware
from muster.algos.ppo import PPO, PPOConfig
from muster.envs import make_envs
from muster.workers import SlotWorker

ENV, NUM_ENVS, SEED = "CartPole-v1", 8, 0


def main(env_steps: int) -> tuple[str, float]:
    """Train, and return the hash of the policy and the mean return of its last episodes."""
    with make_envs(ENV) as envs:
        spaces = envs.single_observation_space, envs.single_action_space
    agent = PPO(PPOConfig(lr=1e-3), *spaces, SEED)
    worker = SlotWorker(agent, ENV, NUM_ENVS, SEED)
    returns: list[float] = []

    def note_return(ctx: Context) -> None:
        if ctx.episodes.count:
            returns.append(ctx.episodes.return_sum / ctx.episodes.count)

    with Task() as task:
        task.ctx.share("env_step")
        task.use(middleware.agree(worker))
        task.use(middleware.collect_rollout(worker))
        task.use(middleware.learn(worker))
        task.use(note_return)
        task.use(middleware.stop_after(env_steps))
        task.run(end="agreed")
    worker.close()
    return agent.policy_sha256(), returns[-1]


if __name__ == "__main__":
    STEPS = 40_960
    alone = main(STEPS)
    together = Parallel.runner(2, threads=1)(main, STEPS)
    print(f"one process:  {alone[0][:12]}, return {alone[1]:.0f}")
    print(f"two of them:  {together[0][0][:12]}, return {together[0][1]:.0f}")
