"""Options of every training run, independent of the algorithm."""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from muster.algos.options import check_choice, check_flag, check_number, check_text, check_whole
from muster.devices import check_name
from muster.errors import OptionError
from muster.framework.parallel import ENGINES
from muster.recipes.env_options import WRAPPERS, parse_env_kwargs
from muster.recipes.hooks import HOOKS
from muster.recipes.resources import parse_resources
from muster.recipes.worker_range import MOST_WORKERS, check_workers
from muster.spelling import nearest

Backend = Literal["auto", "gymnasium", "envpool"]
MOST_SEED = 2**63 - 1
MOST_ENVS = 65_536
"""The limit of `make_envs`."""


@dataclass(frozen=True)
class TrainOptions:
    """Options of `muster train` that all algorithms share."""

    FIXED_ON_RESUME: ClassVar[frozenset[str]] = frozenset(
        {
            "seed",
            "num_envs",
            "backend",
            "learner_slots",
            "wrapper",
            "env_kwargs",
            "backbone",
            "freeze_backbone",
            "eval_env",
            "eval_env_kwargs",
        }
    )
    """Options that identify a run: resuming with another value raises OptionError."""

    env_steps: int | None = None
    """Total environment steps to train for. None: the algorithm's horizon."""
    stop_at: float | None = None
    """Stop when the mean return of an evaluation reaches this value."""
    seconds: float | None = None
    """Stop this command after so many seconds, evaluations included."""
    seed: int = 0
    """Determines everything random: the same seed gives the same policy."""
    workers: int | str | None = None
    """Processes: 0 for this one only, 4..16 for a range. None: all cores if in step, else 0."""
    learners: int | None = None
    """Processes that compute gradients; any number gives the same bits. None: one."""
    learner_slots: int = 4
    """With --learners, the shares that a batch is cut into: the maximum number of learners."""
    engine: str = "local"
    """Where workers run: local, as processes of this machine; ray, on a Ray cluster."""
    address: str | None = None
    """HOST:PORT of a Ray cluster, with --engine ray. None: one on this machine, for this run."""
    resources: tuple[str, ...] = ()
    """With --engine ray, resources reserved per node: learner:num_gpus=1 actor:num_cpus=2."""
    backend: Backend = "auto"
    """Library that runs the environment. auto: Gymnasium, or EnvPool if only that has it here."""
    wrapper: tuple[str, ...] = ()
    """Wrappers around the environment, as module:Wrapper, innermost first: docs/own_envs.md."""
    env_kwargs: tuple[str, ...] = ()
    """Arguments of the environment, as key=value."""
    num_envs: int = 1
    """Environments that step together: in total for algorithms in step, else per acting process."""
    device: str = "cpu"
    """Where networks learn: cpu, cuda, cuda:1, mps, xpu; auto: the first GPU that torch finds."""
    run_dir: str | None = None
    """Directory of the run. None: a new one under runs/."""
    resume: bool = False
    """Resume the run in --run-dir with its own settings; other options given are changes."""
    from_checkpoint: str | None = None
    """Start a new run with the policy of this run or checkpoint; everything else begins anew."""
    backbone: str | None = None
    """With --model: start its convolutions from this run or checkpoint of muster fit or train."""
    freeze_backbone: bool = False
    """With --backbone: these convolutions do not learn."""
    eval_env: str | None = None
    """Environment of evaluations, with equal spaces. None: the one that is trained on."""
    eval_env_kwargs: tuple[str, ...] = ()
    """Arguments of the evaluations' environment, as key=value; else those of --env-kwargs hold."""
    eval_every: int = 5_000
    """Environment steps between two evaluations; 0 to evaluate only at the end."""
    eval_episodes: int = 100
    """Greedy episodes in each evaluation."""
    eval_max_steps: int = 100_000
    """Cut an evaluation's episodes after so many steps: some environments never end one."""
    eval_seconds: float = 600.0
    """Maximum seconds of an evaluation; its mean is of the episodes that ended in time."""
    checkpoint_every: int = 10_000
    """Environment steps between two checkpoints; 0 to save only at the end."""
    save_replay: bool = True
    """Save the replay buffer in checkpoints: only then is a resumed run exactly the same."""
    use: tuple[str, ...] = ()
    """Your own middleware, as module:function: see docs/hooks.md."""
    quiet: bool = False
    """Print nothing but the result."""
    wandb: bool = False
    """Also send metrics to Weights & Biases. Each start is a run there, grouped by directory."""

    def __post_init__(self) -> None:
        if self.env_steps is not None:
            check_whole("env_steps", self.env_steps)
        check_whole("num_envs", self.num_envs, high=MOST_ENVS)
        if self.workers is not None:
            check_workers(self.workers)
        self._check_learners()
        self._check_engine()
        check_whole("eval_episodes", self.eval_episodes, high=1_000_000)
        check_whole("eval_max_steps", self.eval_max_steps)
        check_number("eval_seconds", self.eval_seconds, example=600)
        check_choice("backend", self.backend, Backend)
        check_whole("seed", self.seed, low=0, high=MOST_SEED)
        for name in ("eval_every", "checkpoint_every"):
            check_whole(name, getattr(self, name), low=0)
        if self.stop_at is not None:
            check_number("stop_at", self.stop_at, low=-math.inf, example=475)
        if self.seconds is not None:
            check_number("seconds", self.seconds, example=60)
        for name in ("resume", "save_replay", "quiet", "wandb", "freeze_backbone"):
            check_flag(name, getattr(self, name))
        if self.wandb:
            from muster.run.sinks import check_wandb

            check_wandb()
        for name in ("run_dir", "from_checkpoint", "address", "backbone", "eval_env"):
            check_text(name, getattr(self, name))
        check_name(self.device)
        HOOKS.check(self.use)
        WRAPPERS.check(self.wrapper)
        parse_env_kwargs(self.env_kwargs)
        parse_env_kwargs(self.eval_env_kwargs, "eval_env_kwargs")
        if self.resume and self.run_dir is None:
            raise OptionError(
                "--resume needs a run",
                "the directory of a run says which one to resume",
                "muster resume runs/<env>/<algo>/<date-time>-<seed>",
            )
        if self.resume and self.from_checkpoint is not None:
            raise OptionError(
                "--resume and --from-checkpoint cannot be used together",
                "one resumes a run, the other starts a new one",
                "--resume --run-dir ..., or --from-checkpoint ...",
            )

        self._check_backbone()

    def _check_backbone(self) -> None:
        if self.backbone is not None and self.from_checkpoint is not None:
            raise OptionError(
                "--backbone and --from-checkpoint cannot be used together",
                "the second has the convolutions of its policy already",
                "--from-checkpoint ... alone",
            )
        if self.freeze_backbone and self.backbone is None:
            raise OptionError(
                "freeze_backbone=True is not possible without a backbone",
                "it is the part of the network that does not learn",
                "--backbone RUN --freeze-backbone",
            )

    def _check_learners(self) -> None:
        check_whole("learner_slots", self.learner_slots, high=MOST_WORKERS)
        if self.learners is None:
            return
        check_whole("learners", self.learners, high=MOST_WORKERS)
        if self.learners > self.learner_slots:
            raise OptionError(
                f"learners={self.learners} is not possible with learner_slots={self.learner_slots}",
                "each learner computes at least one slot of a batch",
                f"learner_slots={self.learners}",
            )

    def _check_engine(self) -> None:
        if not isinstance(self.engine, str) or self.engine not in ENGINES:
            near = nearest(str(self.engine), ENGINES) or "local"
            raise OptionError(
                f"engine={self.engine!r:.80} is not possible",
                f"there are: {', '.join(ENGINES)}",
                f"engine={near}",
            )
        if self.engine == "ray" and self.workers == 0 and (self.learners or 1) == 1:
            raise OptionError(
                "engine=ray and workers=0 contradict each other",
                "a run without workers uses this process only",
                "workers=2",
            )
        if self.address is not None and self.engine != "ray":
            raise OptionError(
                f"address={self.address!r:.80} has no effect with engine={self.engine}",
                "an address is that of a Ray cluster",
                "engine=ray",
            )
        if parse_resources(self.resources) and self.engine != "ray":
            raise OptionError(
                f"resources={self.resources!r:.80} has no effect with engine={self.engine}",
                "only a Ray cluster assigns resources to nodes",
                "engine=ray",
            )
