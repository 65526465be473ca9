"""APPO of Sample Factory: asynchronous, two worker processes with half of the environments each.

That is the nearest it has to the recipe: the same batch, minibatches and epochs, but collection
goes on while it learns. It counts the steps that have been learnt from. It does not end by itself,
so its processes are ended here, by their ids; they stand still while the trial looks at the policy.
"""

# mypy: disable-error-code="import-not-found, misc"

import multiprocessing
import os
import signal
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import gymnasium
import torch
from benchmarks.peers.trial import ENV, EPISODES, Finished, Recipe, Trial
from sample_factory.algo.runners.runner import AlgoObserver
from sample_factory.algo.runners.runner_parallel import ParallelRunner
from sample_factory.algo.utils.model_sharing import ParameterClientAsync
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.envs.env_utils import register_env
from sample_factory.utils.timing import Timing

WORKERS = 2


class KeepingRunner(ParallelRunner):
    """Has the weights that the learner shares."""

    def keep_model(self, told: tuple[int, Any, Any, int]) -> None:
        """Take the weights, as the workers do."""
        policy, weights, device, version = told
        server = self.learners[policy].param_server
        self.client = ParameterClientAsync(server, self.cfg, self.env_info, Timing())
        self.client.on_weights_initialized(weights, device, version)


class Tell(AlgoObserver):
    """Tells the trial of every update."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self.finished = False

    def on_connect_components(self, runner: Any) -> None:
        """Ask for the weights."""
        runner.learners[0].model_initialized.connect(runner.keep_model)

    def on_training_step(self, runner: Any, training_iteration_since_resume: int) -> None:
        """Tell, and stop when the trial is finished."""
        if self.finished:
            return

        def act(observations: Any) -> Any:
            return _greedy(runner.client.actor_critic, observations)

        returns: Sequence[float] = runner.policy_avg_stats.get("reward", [()])[0]
        env_steps = training_iteration_since_resume * self._trial.recipe.batch
        try:
            self._trial.updated(env_steps, act, returns)
        except Finished:
            self.finished = True
            runner.event_loop.stop()


def run(trial: Trial) -> None:
    """Train until the trial is finished."""
    register_env(ENV, make_env)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        arguments = _arguments(trial, folder)
        parser, _ = parse_sf_args(argv=arguments)
        runner = KeepingRunner(parse_full_cfg(parser, arguments))
        trial.pausing = lambda: _standing_still(runner)
        tell = Tell(trial)
        runner.register_observer(tell)
        try:
            runner.init()
            runner.run()
        finally:
            _signal_all(signal.SIGKILL)
            for process in multiprocessing.active_children():
                process.join()
    if tell.finished:
        raise Finished


def make_env(name: str, cfg: Any = None, env_config: Any = None, render_mode: Any = None) -> Any:
    """Make the environment; in every worker, so it must be found by its name."""
    return gymnasium.make(name, render_mode=render_mode)


def _arguments(trial: Trial, folder: str) -> list[str]:
    recipe: Recipe = trial.recipe
    options = {
        "env": ENV,
        "train_dir": folder,
        "experiment": "run",
        "device": "cpu",
        "seed": trial.seed,
        "num_workers": WORKERS,
        "num_envs_per_worker": recipe.num_envs // WORKERS,
        "rollout": recipe.rollout,
        "batch_size": recipe.minibatch,
        "num_batches_per_epoch": recipe.minibatches,
        "num_epochs": recipe.epochs,
        "learning_rate": recipe.lr,
        "gamma": recipe.gamma,
        "gae_lambda": recipe.gae_lambda,
        "ppo_clip_ratio": recipe.clip,
        "ppo_clip_value": 1e9,
        "exploration_loss_coeff": recipe.entropy_coef,
        "value_loss_coeff": 0.5,
        "max_grad_norm": 0.5,
        "reward_scale": 0.1,  # as its own example has it; else every update writes a warning
        "use_rnn": False,
        "recurrence": 1,
        "nonlinearity": "tanh",
        "actor_critic_share_weights": False,
        "normalize_input": False,
        "normalize_returns": False,
        "stats_avg": EPISODES,
        "log_to_file": False,
        "train_for_env_steps": 10**9,
    }
    layers = ["--encoder_mlp_layers", *map(str, recipe.hidden)]
    return [f"--{name}={value}" for name, value in options.items()] + layers


def _greedy(net: Any, observations: Any) -> Any:
    with torch.no_grad():
        seen = net.normalize_obs({"obs": torch.as_tensor(observations)})
        told = net(seen, torch.zeros(len(observations), 1))
    return told["action_logits"].argmax(1).numpy()


@contextmanager
def _standing_still(runner: Any) -> Iterator[None]:
    """Stop the other processes, with the newest weights here."""
    _signal_all(signal.SIGSTOP)
    try:
        runner.client.actor_critic.load_state_dict(runner.client._shared_model_weights)
        yield
    finally:
        _signal_all(signal.SIGCONT)


def _signal_all(number: signal.Signals) -> None:
    for process in multiprocessing.active_children():
        with suppress(ProcessLookupError):
            os.kill(process.pid or 0, number)
