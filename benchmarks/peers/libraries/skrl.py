"""PPO of skrl, on gymnasium's vector environment in one process."""

# mypy: disable-error-code="import-not-found, misc"

import tempfile
from typing import Any

import gymnasium
import torch
from benchmarks.peers.trial import EPISODES, Solve, Trial
from gymnasium.wrappers.vector import RecordEpisodeStatistics
from skrl.agents.torch.ppo import PPO
from skrl.envs.wrappers.torch import wrap_env
from skrl.memories.torch import RandomMemory
from skrl.models.torch import CategoricalMixin, DeterministicMixin, Model
from skrl.trainers.torch import SequentialTrainer
from skrl.utils import set_seed


class Actor(CategoricalMixin, Model):
    """The policy."""

    def __init__(self, env: Any, hidden: tuple[int, ...]) -> None:
        Model.__init__(self, **_spaces(env))
        CategoricalMixin.__init__(self)
        self.net = _net(self.num_observations, hidden, self.num_actions)

    def compute(self, inputs: dict[str, Any], role: str = "") -> tuple[Any, dict[str, Any]]:
        """Return the logits."""
        return self.net(inputs["observations"]), {}


class Critic(DeterministicMixin, Model):
    """The value of a state."""

    def __init__(self, env: Any, hidden: tuple[int, ...]) -> None:
        Model.__init__(self, **_spaces(env))
        DeterministicMixin.__init__(self)
        self.net = _net(self.num_observations, hidden, 1)

    def compute(self, inputs: dict[str, Any], role: str = "") -> tuple[Any, dict[str, Any]]:
        """Return the values."""
        return self.net(inputs["observations"]), {}


class TellingPPO(PPO):
    """Tells the trial of every update."""

    trial: Trial
    episodes: Any = ()

    def update(self, *, timestep: int, timesteps: int) -> None:
        """Update, and tell of it."""
        super().update(timestep=timestep, timesteps=timesteps)
        env_steps = (timestep + 1) * self.trial.recipe.num_envs
        self.trial.updated(env_steps, self._greedy, self.episodes)

    def _greedy(self, observations: Any) -> Any:
        with torch.no_grad():
            return self.policy.net(torch.as_tensor(observations)).argmax(1).numpy()


def run(trial: Trial) -> None:
    """Train until the trial is finished."""
    torch.set_num_threads(trial.threads)
    set_seed(trial.seed)
    recipe = trial.recipe
    envs: Any = gymnasium.make_vec(recipe.env, num_envs=recipe.num_envs, vectorization_mode="sync")
    episodes: Any = ()
    if isinstance(trial, Solve):  # skrl's own count of returns is slower
        envs = RecordEpisodeStatistics(envs, buffer_length=EPISODES)
        episodes = envs.return_queue
    env = wrap_env(envs)
    with tempfile.TemporaryDirectory() as folder:
        agent = TellingPPO(
            models={"policy": Actor(env, recipe.hidden), "value": Critic(env, recipe.hidden)},
            memory=RandomMemory(memory_size=recipe.rollout, num_envs=env.num_envs, device="cpu"),
            cfg={
                "rollouts": recipe.rollout,
                "learning_epochs": recipe.epochs,
                "mini_batches": recipe.minibatches,
                "discount_factor": recipe.gamma,
                "gae_lambda": recipe.gae_lambda,
                "learning_rate": recipe.lr,
                "ratio_clip": recipe.clip,
                "value_clip": 0.0,
                "value_loss_scale": 0.5,
                "entropy_loss_scale": recipe.entropy_coef,
                "experiment": _silent(folder),
            },
            **_spaces(env),
        )
        agent.trial, agent.episodes = trial, episodes
        limits = {"timesteps": 10**9, "headless": True, "disable_progressbar": True}
        SequentialTrainer(env=env, agents=agent, cfg=limits).train()


def _silent(folder: str) -> Any:
    from skrl.agents.torch import ExperimentCfg

    return ExperimentCfg(directory=folder, write_interval=0, checkpoint_interval=0)


def _spaces(env: Any) -> dict[str, Any]:
    return {
        "observation_space": env.observation_space,
        "action_space": env.action_space,
        "device": "cpu",
    }


def _net(inputs: int, hidden: tuple[int, ...], outputs: int) -> torch.nn.Sequential:
    layers: list[torch.nn.Module] = []
    for width in hidden:
        layers += [torch.nn.Linear(inputs, width), torch.nn.Tanh()]
        inputs = width
    return torch.nn.Sequential(*layers, torch.nn.Linear(inputs, outputs))
