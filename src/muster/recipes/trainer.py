"""`Trainer`: a training run under the control of your own loop.

    with muster.Trainer("ppo", "CartPole-v1") as trainer:
        for step in trainer:           # or trainer.step(), as often as you like
            print(step)

The run is the one that `muster.train` makes: same options, same files, same policy bit for bit.
"""

import signal
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NoReturn, Self

from muster.algos.options import check_whole
from muster.errors import OptionError, TaskError
from muster.framework.signals import SignalExit, Signals
from muster.nets.threads import one_torch_thread
from muster.recipes.algorithms import load_algorithm, make_agent
from muster.recipes.paced_run import PacedRun
from muster.recipes.policy import LoadedPolicy
from muster.recipes.result import RunResult
from muster.recipes.resuming import refuse_code, saved_run
from muster.recipes.saved import refuse_env_of_a_file, saved_config
from muster.recipes.step_result import StepResult
from muster.run import RunDirectory
from muster.run.new_run import check_new
from muster.shown import shown
from muster.workers import Evaluation, evaluate_policy


class Trainer:
    """Trains step by step, with all algorithms, workers and engines of `muster.train`.

    Making a trainer checks everything and makes the run directory; the first `step` starts the
    processes. Use it in a `with` block: leaving the block ends all processes and completes the run
    directory, also after an exception or Ctrl-C. In a notebook you may call `close` instead.

    Args:
        algo: As for `muster.train`.
        env: As for `muster.train`.
        config: As for `muster.train`.
        **options: As for `muster.train`; `quiet` is True unless given.
    """

    def __init__(
        self,
        algo: str | None = None,
        env: str | None = None,
        config: str | Path | None = None,
        **options: Any,
    ) -> None:
        self._run = PacedRun(algo, env, config, {"quiet": True, **options})
        self._signals: AbstractContextManager[None] | None = None
        # A notebook cell that runs again drops the trainer of its last time: end that run.
        weakref.finalize(self, self._run.request_close).atexit = False

    @classmethod
    def resume(cls, run: str | Path, **changes: Any) -> Self:
        """Return a trainer that resumes a run, as `muster.resume` does.

        Args:
            run: The run's directory.
            **changes: Options that change, such as `env_steps`, the new total.
        """
        return cls(run_dir=str(run), resume=True, **changes)

    @classmethod
    def from_checkpoint(
        cls, path: str | Path, env: str | None = None, algo: str | None = None, **changes: Any
    ) -> Self:
        """Return a trainer of a new run that begins with a saved policy, and its run's settings.

        Counters, optimizer, replay and environments begin anew; `Trainer.resume` keeps them.

        Args:
            path: A run directory (its last checkpoint), or a checkpoint in it.
            env: Another environment with the same spaces; by default that of the saved run.
            algo: The algorithm of the saved run, needed only if it is `module:name`.
            **changes: Options that change, such as `lr` or `seed`.

        Raises:
            OptionError: The policy does not fit the environment; the message shows the spaces.
        """
        if "from_checkpoint" in changes or changes.get("resume"):
            raise OptionError(
                "Trainer.from_checkpoint already says where the run begins",
                "resume and from_checkpoint would say it once more",
                f"Trainer.from_checkpoint({str(path)!r}), or Trainer.resume(run)",
            )
        load_algorithm(algo)
        saved = saved_run(path)
        if env is None:
            refuse_env_of_a_file(saved.env, saved.path)
        refuse_code(saved, changes)
        options = {**saved.options, **changes, "from_checkpoint": str(path)}
        return cls(saved.algo, saved.env if env is None else env, **options)

    # ---- training

    def step(self, env_steps: int | None = None) -> StepResult:
        """Train one iteration, and return what it did.

        An iteration is one rollout and its updates for algorithms in step (ppo, a2c, pqn); for the
        others it ends with the next line of metrics, usually after 1,000 environment steps.

        Args:
            env_steps: Train for at least so many environment steps instead.

        Raises:
            TaskError: The run has ended.
        """
        if env_steps is not None:
            check_whole("env_steps", env_steps)
        if self.is_finished:
            self._refuse("train")
        return self._run.step(env_steps)

    def __iter__(self) -> Iterator[StepResult]:
        """Train to the end, and yield the result of each iteration."""
        while not self.is_finished:
            yield self.step()

    @property
    def is_finished(self) -> bool:
        """Whether the run has ended: at a limit, at its target, or because it was closed."""
        return self._run.has_ended

    @property
    def env_step(self) -> int:
        """Environment steps of the run so far."""
        return self._run.env_step

    # ---- the policy

    @property
    def policy(self) -> LoadedPolicy:
        """A copy of the policy as it is now; later steps do not change it."""
        self._raise_failure()
        ready = self._run.ready
        if self._run.result is not None:
            policy: LoadedPolicy = self._run.result.policy
            return policy
        assert ready is not None
        job, begun = ready.job, ready.agent
        weights = self._run.weights() if self._run.has_begun else begun.parts()["policy"]
        if weights is None:  # it ended meanwhile
            return self.policy
        with one_torch_thread():
            spaces = begun.obs_space, begun.action_space
            agent = make_agent(job.algo, job.cfg, spaces, job.options.seed)
            agent.load_parts({"policy": weights})
        return LoadedPolicy(agent, begun.obs_space, job.env, job.options.backend, setup=job.setup)

    def evaluate(self, episodes: int = 20, seed: int | None = None) -> Evaluation:
        """Play episodes greedily with the policy as it is now, in this process (`eval_env` holds).

        Training is not affected, and the result is not written to the run's metrics.

        Args:
            episodes: Number of episodes.
            seed: Determines their start states; by default the run's evaluations have the same.
        """
        check_whole("episodes", episodes, high=1_000_000)
        policy = self.policy
        setup, backend, usual = policy.setup, policy.backend, 0
        if self._run.ready is not None:
            job = self._run.ready.job
            setup, backend = job.eval_setup, job.eval_backend
            usual = job.options.seed
        elif self._run.result is not None:
            usual = self._run.result.seed
        seed = usual if seed is None else seed
        check_whole("seed", seed, low=0)
        with one_torch_thread():
            return evaluate_policy(policy.agent, setup, episodes, seed, backend=backend)

    def save(self, path: str | Path | None = None) -> Path:
        """Save a checkpoint, and return its path.

        Args:
            path: A new directory, which becomes a run directory with only this checkpoint. By
                default the checkpoint is one of the run's own, of which the newest three are kept.
        """
        target = None if path is None else check_new(path)
        self._raise_failure()
        if self._run.result is not None:
            found = RunDirectory.open(self.run_dir).checkpoints.last()
        elif not self._run.has_begun:
            found = None
        else:
            saved = self._run.ask("checkpoint")
            found = None if saved is None else Path(saved)
            if saved is None:  # the run ended meanwhile, and has saved
                return self.save(path)
        if found is None:
            raise TaskError(
                "there is nothing to save yet",
                "the run has not made a step",
                "trainer.step() first; trainer.policy is the policy that it begins with",
            )
        return found if target is None else _copied(found, target)

    # ---- the run

    @property
    def run_dir(self) -> Path:
        """The run's directory."""
        if self._run.ready is not None:
            return Path(self._run.ready.job.run_dir)
        assert self._run.result is not None
        return self._run.result.run_dir

    def result(self) -> RunResult:
        """Return the result of the run, which has ended.

        Raises:
            TaskError: The run has not ended.
        """
        self._raise_failure()
        if self._run.result is None:
            raise TaskError(
                "the run has no result yet",
                f"it has made {self.env_step:,} steps, and goes on with the next trainer.step()",
                "leave the with block first, or call trainer.close()",
            )
        return self._run.result

    def close(self) -> RunResult:
        """End the run where it is: save, end all processes, and return the result.

        Does nothing more if the run has ended.
        """
        self._run.close()
        return self.result()

    def __enter__(self) -> Self:
        """Return this trainer. In the block, SIGTERM and SIGHUP end the program as Ctrl-C does."""
        self._signals = Signals().installed()
        self._signals.__enter__()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """End the run; after Ctrl-C or another signal, record which one."""
        number = None
        if isinstance(error, KeyboardInterrupt):
            number = int(signal.SIGINT)
        elif isinstance(error, SignalExit) and isinstance(error.code, int):
            number = error.code - 128
        failed_before = self._run.error is not None
        try:
            self._run.close(number)
        finally:
            if self._signals is not None:
                self._signals.__exit__(None, None, None)
        if self._run.error is None or failed_before:
            return
        if error is None:
            raise self._run.error
        error.add_note(f"the run ended with {type(self._run.error).__name__}: {self._run.error}")

    def __repr__(self) -> str:
        state = "finished" if self.is_finished else "open"
        return f"<Trainer {shown(self.run_dir)}, {self.env_step:,} steps, {state}>"

    def _raise_failure(self) -> None:
        if self._run.error is not None:
            raise self._run.error

    def _refuse(self, what: str) -> NoReturn:
        self._raise_failure()
        result = self._run.result
        assert result is not None
        more = 2 * result.env_steps or 10_000
        raise TaskError(
            f"this run has ended and cannot {what} any more",
            f"it was stopped by {result.stopped_by!r} after {result.env_steps:,} steps",
            f"Trainer.resume({shown(result.run_dir)!r}, env_steps={more})",
        )


def _copied(checkpoint: Path, target: Path) -> Path:
    """Copy a checkpoint into a run directory of its own, and return the copy's path."""
    run = RunDirectory.open(checkpoint)
    loaded = run.checkpoints.load(checkpoint)
    config = saved_config(run)
    name = str(config.get("env")), str(config.get("algo")), int(config.get("seed") or 0)
    with RunDirectory.create(target, *name) as copy:
        copy.write_config(config)
        return copy.checkpoints.save(loaded.step, loaded.parts, loaded.counters, loaded.meta)
