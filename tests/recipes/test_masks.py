"""Masks in every algorithm: an illegal action is never taken, and the run is what it was."""

import json

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from mask_env import LENGTH

import muster
from muster.recipes.algorithms import ALGORITHMS, configuration_of, make_agent
from muster.rl_utils.losses.ppo import ppo_loss

QUICK = {"eval_episodes": 5, "eval_every": 0, "stop_at": None, "quiet": True, "hidden": (16,)}
_REPLAY = {"env_steps": 512, "train_every": 64, "updates_per_train": 8, "learning_starts": 128}
_SEQUENCES = {"batch_size": 16, "sequence": 8, "overlap": 4, "burn_in": 4}
OWN = {"dqn": _REPLAY, "apex": _REPLAY, "r2d2": _REPLAY | _SEQUENCES}
MASKED = []
for _algo in ALGORITHMS:
    try:
        configuration_of(_algo).check_actions(spaces.Discrete(2))
    except muster.OptionError:
        continue
    MASKED.append(_algo)
IN_STEP = [algo for algo in MASKED if configuration_of(algo).PROGRAM == "in_step"]


def options_of(algo, **more):
    return {**QUICK, "env_steps": 1_024, **OWN.get(algo, {}), **more}


@pytest.mark.parametrize("algo", MASKED)
def test_no_step_of_training_or_evaluation_takes_an_illegal_action(tmp_path, algo):
    result = muster.train(
        algo, "mask_env:Corridor-v0", run_dir=str(tmp_path / "run"), workers=0, **options_of(algo)
    )
    # One wrong door in all of training would have ended an episode early, with -1.
    assert result.eval_return_mean == LENGTH
    lines = (tmp_path / "run" / "metrics.jsonl").read_text()
    returns = {float(x) for x in _values(lines, "collect/return")}
    assert returns == {LENGTH}


def _values(lines, name):
    return [json.loads(line)[name] for line in lines.splitlines() if name in json.loads(line)]


@pytest.mark.parametrize("algo", MASKED)
def test_without_the_mask_the_same_algorithm_fails(tmp_path, algo):
    result = muster.train(
        algo, "mask_env:Blind-v0", run_dir=str(tmp_path / "run"), workers=0, **options_of(algo)
    )
    assert result.eval_return_mean < 0


@pytest.mark.parametrize("algo", IN_STEP)
@pytest.mark.parametrize("model", [None, pytest.param("lstm", marks=pytest.mark.slow)])
def test_masks_do_not_change_with_the_number_of_workers(tmp_path, algo, model):
    found = {
        muster.train(
            algo,
            "mask_env:Corridor-v0",
            run_dir=str(tmp_path / str(workers)),
            workers=workers,
            model=model,
            **options_of(algo),
        ).policy_sha256
        for workers in (0, 2)
    }
    assert len(found) == 1


@pytest.mark.timeout(600)
def test_masks_go_to_the_learner_with_what_actors_send(tmp_path):
    result = muster.train(
        "dqn",
        "mask_env:Corridor-v0",
        run_dir=str(tmp_path / "run"),
        workers=3,
        prioritized=True,
        n_step=2,
        **options_of("dqn"),
    )
    assert result.eval_return_mean == LENGTH


@pytest.mark.parametrize("algo", MASKED)
@pytest.mark.parametrize("model", [None, "lstm", "gru", "nature_cnn", "impala_cnn", "own"])
def test_every_network_leaves_illegal_actions_out(algo, model):
    if algo in OWN and (model in ("lstm", "gru")) != (algo == "r2d2"):
        pytest.skip("of Q-learners on replay one has a memory, and that one has no other network")
    picture = model in ("nature_cnn", "impala_cnn")
    seen = spaces.Box(0, 255, (36, 36, 1), np.uint8) if picture else spaces.Box(-1, 1, (3,))
    space = spaces.Dict({"obs": seen, "action_mask": spaces.MultiBinary(6)})
    plain = {"dueling": False} if algo == "apex" else {}  # a model has its own head
    cfg = configuration_of(algo)(hidden=(16,), model=None if model == "own" else model, **plain)
    agent = (
        make_own(algo, cfg, space)
        if model == "own"
        else make_agent(algo, cfg, (space, spaces.Discrete(6)), 0)
    )
    rng = np.random.default_rng(0)
    mask = np.zeros((200, 6), np.int8)
    mask[np.arange(200), rng.integers(0, 6, 200)] = 1
    mask[:100, 2] = 1
    rows = (
        rng.integers(0, 256, (200, 36, 36, 1), np.uint8)
        if picture
        else (rng.normal(size=(200, 3)).astype(np.float32))
    )
    obs = {"obs": rows, "action_mask": mask}
    for act in (agent.act, agent.explore):
        chosen = act(obs)
        assert mask[np.arange(200), chosen].all()
    if algo in OWN:
        assert mask[np.arange(200), agent.explore(obs, 1.0)].all()


def make_own(algo, cfg, space):
    import torch
    from torch import nn

    from muster.recipes.algorithms import load

    class Own(nn.Module):
        def __init__(self, obs_space, outputs):
            super().__init__()
            self.q = nn.Linear(3, outputs)
            self.pair = hasattr(cfg, "value_coef")  # a policy and a value

        def forward(self, obs):
            q = self.q(obs["obs"])
            return (q, torch.zeros(len(q))) if self.pair else q

    return load(algo, "agent")(cfg, space, spaces.Discrete(6), 0, model=Own)


def test_an_illegal_action_has_no_probability_no_entropy_and_no_gradient():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(8, 5)).astype(np.float32)
    legal = np.array([True, False, True, True, False])
    masked = np.where(legal, logits, np.float32(-1e9))
    few = np.ascontiguousarray(logits[:, legal])
    action = rng.integers(0, 3, (8, 1))
    places = np.flatnonzero(legal)
    columns = [rng.normal(size=8).astype(np.float32) for _ in range(4)]
    found = []
    for outputs, chosen in ((masked, places[action]), (few, action)):
        d_outputs, d_value, stats = np.empty_like(outputs), np.empty(8, np.float32), np.zeros(5)
        sizes = np.array([outputs.shape[1]])
        rows = np.arange(8)
        terms = (0.125, 0.2, 0.0, 0.5, 0.01)
        assert (
            ppo_loss(
                outputs, columns[0], rows, chosen, *columns[:1], *columns[1:],
                False, sizes, *terms, d_outputs, d_value, stats,
            )
            == -1
        )  # fmt: skip
        found.append((d_outputs, stats))
    (wide, wide_stats), (narrow, narrow_stats) = found
    assert (wide[:, ~legal] == 0).all()
    np.testing.assert_allclose(wide[:, legal], narrow, rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(wide_stats, narrow_stats, rtol=1e-6)


def test_gymnasiums_own_masked_environment_trains(tmp_path):
    result = muster.train(
        "ppo", "Taxi-v4", run_dir=str(tmp_path / "run"), workers=0, **options_of("ppo")
    )
    policy = muster.load_policy(tmp_path / "run")
    env = gym.make("Taxi-v4")
    obs, info = env.reset(seed=0)
    for _ in range(30):
        action = policy.act({"obs": obs, "action_mask": info["action_mask"]})
        assert info["action_mask"][action]
        obs, *_, info = env.step(action)
    assert result.env_steps == 1_024
