"""PPO of Tianshou, on its vector environment in one process."""

# mypy: disable-error-code="import-not-found, misc"

from collections import deque
from typing import Any, ClassVar

import gymnasium
import numpy
import torch
from benchmarks.peers.trial import ENV, EPISODES, Trial
from tianshou.algorithm import PPO
from tianshou.algorithm.modelfree.reinforce import DiscreteActorPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.trainer import OnPolicyTrainerParams
from tianshou.utils.net.common import Net
from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic


class TellingCollector(Collector):
    """Keeps the returns of the last episodes."""

    last_returns: ClassVar[deque[float]] = deque(maxlen=EPISODES)

    def collect(self, *args: Any, **options: Any) -> Any:
        """Collect, and keep the returns."""
        stats = super().collect(*args, **options)
        self.last_returns.extend(stats.returns)
        return stats


def run(trial: Trial) -> None:
    """Train until the trial is finished."""
    torch.set_num_threads(trial.threads)
    torch.manual_seed(trial.seed)
    numpy.random.seed(trial.seed)
    recipe = trial.recipe
    envs = DummyVectorEnv([lambda: gymnasium.make(ENV) for _ in range(recipe.num_envs)])
    envs.seed(trial.seed)
    space: Any = envs.action_space[0]
    shape = envs.observation_space[0].shape
    nets = [
        Net(state_shape=shape, hidden_sizes=recipe.hidden, activation=torch.nn.Tanh)
        for _ in range(2)
    ]
    actor = DiscreteActor(preprocess_net=nets[0], action_shape=space.n, softmax_output=False)
    algorithm = PPO(
        policy=DiscreteActorPolicy(actor=actor, action_space=space, deterministic_eval=True),
        critic=DiscreteCritic(preprocess_net=nets[1]),
        optim=AdamOptimizerFactory(lr=recipe.lr),
        eps_clip=recipe.clip,
        ent_coef=recipe.entropy_coef,
        max_grad_norm=0.5,
        gae_lambda=recipe.gae_lambda,
        max_batchsize=recipe.batch,
        gamma=recipe.gamma,
    )
    buffer = VectorReplayBuffer(recipe.batch, recipe.num_envs)
    collector = TellingCollector(algorithm, envs, buffer)

    def act(observations: Any) -> Any:
        with torch.no_grad():
            return actor(observations)[0].argmax(1).numpy()

    def tell(_: int, env_steps: int) -> None:
        """Hear that a collection starts, so that the one before has been learnt."""
        if env_steps:
            trial.updated(env_steps, act, collector.last_returns)

    algorithm.run_training(
        OnPolicyTrainerParams(
            training_collector=collector,
            max_epochs=1,
            epoch_num_steps=10**9,
            collection_step_num_env_steps=recipe.batch,
            batch_size=recipe.minibatch,
            update_step_num_repetitions=recipe.epochs,
            training_fn=tell,
            verbose=False,
            show_progress=False,
        )
    )
