"""`CostSource`: where a plan has its settings and costs from, and whether they fit together.

options, preset        -> measured here
options, a calibration -> its costs, if they are of this algorithm, environment and network
a finished run         -> its settings, with options as changes, and its costs
"""

from pathlib import Path
from typing import Any

from muster.algos.options import check_whole
from muster.errors import OptionError
from muster.planning.calibrate import calibrate, check_costs, costs_of_run, read_costs
from muster.planning.costs import RunCosts
from muster.recipes.algorithms import check_algorithm, configuration_of, load_algorithm
from muster.recipes.bench import check as check_bench
from muster.recipes.own_modules import is_code
from muster.recipes.resuming import SavedRun, saved_run
from muster.recipes.settings import Settings, resolve
from muster.recipes.worker_range import MOST_WORKERS
from muster.shown import shown

_OF_PROCESSES = ("workers", "learners", "engine", "address", "resources", "use", "wandb")
"""Options of a finished run that the plan decides, or that change no cost."""
_CODE = {"model": None, "wrapper": ()}
"""Options that may name code, which a file may not make run; costs contain what it costs."""


class CostSource:
    """The source of a plan's settings and costs.

    Args:
        algo: Name of the algorithm; None for that of the run.
        env: Id of the environment; None for that of the run.
        from_run: A finished run.
        calibration: Known costs, or a file of them.

    Raises:
        OptionError: Neither names an algorithm and an environment, or they contradict each other.
        RunDirectoryError: There is no such run.
    """

    def __init__(
        self,
        algo: str | None,
        env: str | None,
        from_run: str | Path | None,
        calibration: str | Path | RunCosts | None,
    ) -> None:
        load_algorithm(algo)
        if algo is not None:
            check_algorithm(algo, f"muster plan {{}} {env or 'CartPole-v1'}")
        self._run = None if from_run is None else saved_run(from_run)
        if self._run is not None:
            _check_same(self._run, algo, env)
            algo, env = self._run.algo, self._run.env
        if algo is None or env is None:
            raise OptionError(
                "a plan needs an algorithm and an environment",
                "they determine what a step costs",
                'muster.plan("ppo", "CartPole-v1")',
            )
        self.algo, self.env = algo, env
        self._known = (
            read_costs(calibration) if isinstance(calibration, str | Path) else calibration
        )

    def settings(self, given: dict[str, Any], learners: int | None = None) -> Settings:
        """Return the checked settings; those of a finished run hold where nothing is given.

        Args:
            given: Options of `train`.
            learners: Processes that compute gradients; in step these are the workers.
        """
        base = None
        if self._run is not None:
            of_run = self._run.options
            base = {name: of_run[name] for name in of_run if name not in _OF_PROCESSES}
            named = [name for name in _CODE if base.get(name)]
            base |= {k: _CODE[k] for k in named if k == "wrapper" or is_code(base[k])}
        told = dict(given)
        if learners is not None:
            check_whole("learners", learners, high=MOST_WORKERS)
            config: Any = configuration_of(self.algo)
            if config.PROGRAM != "in_step":
                told["learners"] = learners
        settings = resolve(self.algo, self.env, told, base=base)
        if self._known is not None:
            check_costs(self._known, self.algo, self.env, settings)
        return settings

    def costs(self, settings: Settings, given: dict[str, Any], seconds: float) -> RunCosts:
        """Return the costs: known, of the run, or measured here for some seconds."""
        if self._known is not None:
            return self._known
        if self._run is not None:
            own = self.settings({})
            found = costs_of_run(self._run.path, own, self.algo, self.env)
            check_costs(found, self.algo, self.env, settings)
            return found
        check_bench(self.algo, self.env, {**given, "seconds": seconds})
        return calibrate(self.algo, self.env, settings, given, seconds)


def _check_same(run: SavedRun, algo: str | None, env: str | None) -> None:
    """Raise OptionError if a run is of another algorithm or environment."""
    for key, there, here in (("algo", run.algo, algo), ("env", run.env, env)):
        if here not in (None, there):
            raise OptionError(
                f"the run in {shown(run.path)} is of {key} {there!r:.80}",
                f"this plan is of {here!r:.80}, which has other costs",
                f"muster plan --from-run {shown(run.path)}",
            )
