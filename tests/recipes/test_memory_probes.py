"""An environment that only a memory solves, in seconds."""

import pytest
from recall_env import Recall

from muster.algos.dqn import DQNConfig, make_dqn
from muster.algos.r2d2 import R2D2, R2D2Config
from muster.data import ReplayBuffer
from muster.envs import make_envs
from muster.framework import Task
from muster.middleware import collect, train
from muster.workers import Collector, Learner, evaluate_policy

GAMMA = 0.9


def learnt(agent, loops=150):
    """Return the mean return of greedy episodes after training."""
    cfg = agent.cfg
    envs = make_envs(Recall, 4, seed=0)
    buffer = ReplayBuffer(
        2_000,
        agent.obs_space,
        agent.action_space,
        num_envs=4,
        gamma=GAMMA,
        unit=cfg.unit,
        columns=agent.schema,
        prioritized=cfg.prioritized,
        min_size=200,
    )
    task = Task()
    task.use(collect(Collector(agent, envs, steps=12), buffer, lambda step: 0.5))
    task.use(train(Learner(agent), buffer, updates=8, beta=agent.beta))
    task.run(loops)
    return evaluate_policy(agent, Recall, episodes=40).mean


@pytest.mark.parametrize("model", ["lstm", "gru"])
@pytest.mark.parametrize(
    "unit",
    [
        {"sequence": 6, "overlap": 0, "burn_in": 0},
        # No sequence has both the sign and the question: the stored state has to bring it.
        {"sequence": 4, "overlap": 2, "burn_in": 1},
    ],
    ids=["whole episodes", "parts of episodes"],
)
def test_r2d2_recalls_what_it_saw_at_the_start(model, unit):
    cfg = R2D2Config(
        model=model, hidden=(16,), lr=5e-3, gamma=GAMMA, batch_size=32, target_update=25, **unit
    )
    agent = R2D2(cfg, Recall.observation_space, Recall.action_space, seed=0)
    assert learnt(agent) == 1.0


def test_dqn_recalls_it_with_a_memory():
    cfg = DQNConfig(
        model="gru",
        hidden=(16,),
        lr=5e-3,
        gamma=GAMMA,
        batch_size=32,
        target_update=25,
        sequence=4,
        overlap=2,
        burn_in=1,
    )
    agent = make_dqn(cfg, Recall.observation_space, Recall.action_space, seed=0)
    assert learnt(agent) == 1.0
