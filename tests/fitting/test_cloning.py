"""Behaviour cloning: `muster fit` on recorded episodes, and training that goes on from there."""

import json

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete
from recorded import about, random_episodes, record_expert, write_episodes
from torch.distributions import Categorical, Normal

import muster
from muster.cli.main import main
from muster.errors import MusterError, OptionError
from muster.fitting import FitOptions, load_classifier, load_data
from muster.fitting.job import make_network
from muster.workers import evaluate_policy

pytestmark = pytest.mark.timeout(120)

OBS = Box(-1, 1, (3,), np.float32)
MASKED = Dict({"obs": OBS, "action_mask": Box(0, 1, (5,), np.int8)})
CARTPOLE = Box(-10, 10, (4,), np.float32), Discrete(2)


@pytest.fixture(scope="module")
def expert(tmp_path_factory):
    """Return where the episodes of a scripted expert are, and their evaluation."""
    path = tmp_path_factory.mktemp("expert") / "episodes"
    return path, record_expert(path, "CartPole-v1", CARTPOLE)


@pytest.fixture(scope="module")
def clone(expert, tmp_path_factory):
    run = tmp_path_factory.mktemp("clone") / "run"
    more = {"optimizer": "adam", "lr": 0.003, "epochs": 12, "batch_size": 128, "quiet": True}
    return muster.fit("mlp", expert[0], run_dir=run, **more)


def random_data(path, obs_space, action_space, **more):
    episodes = random_episodes(obs_space, action_space, **more)
    return write_episodes(path / "episodes", obs_space, action_space, episodes)


# ---- from an expert to a policy that trains on


def test_a_clone_of_an_expert_is_as_good_and_training_goes_on_from_it(expert, clone, tmp_path):
    assert expert[1].mean == 500
    assert clone.test_accuracy > 0.9 and clone.best_test_loss is None
    policy = muster.load_policy(clone.run_dir / "checkpoints" / f"step-{clone.samples}")
    assert policy.env == "CartPole-v1"
    assert policy.agent.policy_sha256() == clone.model_sha256, "the same weights, name by name"
    cloned = evaluate_policy(policy, "CartPole-v1", 20, seed=5)
    assert cloned.mean >= 400

    more = {"env_steps": 2048, "lr": 1e-5, "workers": 0, "eval_every": 0, "eval_episodes": 10}
    trained = muster.train(
        "ppo",
        "CartPole-v1",
        from_checkpoint=clone.run_dir,
        run_dir=tmp_path / "run",
        stop_at=None,
        quiet=True,
        **more,
    )
    assert trained.eval_return_mean >= 400
    assert f"from_checkpoint: {clone.run_dir}" in (tmp_path / "run" / "config.yaml").read_text()


@pytest.mark.parametrize("algo", ["a2c", "a3c", "impala", "appo"])
def test_every_actor_critic_starts_with_the_weights_of_the_clone(clone, tmp_path, algo):
    # A learning rate of nearly 0: after an update the weights are still the clone's.
    done = muster.train(
        algo,
        "CartPole-v1",
        from_checkpoint=clone.run_dir,
        run_dir=tmp_path / "run",
        **{"env_steps": 128, "lr": 1e-12, "workers": 0, "stop_at": None, "quiet": True},
        **{"eval_every": 0, "eval_episodes": 1, "num_envs": 8},
    )
    best = muster.load_policy(clone.run_dir).agent.weights.vector
    np.testing.assert_allclose(done.policy.agent.weights.vector, best, atol=1e-6)


@pytest.mark.parametrize(
    ("algo", "env", "options", "what", "fix"),
    [
        ("dqn", "CartPole-v1", {}, "dqn cannot start from", "muster train ppo"),
        ("pqn", "CartPole-v1", {}, "pqn cannot start from", "muster train ppo"),
        ("sac", "Pendulum-v1", {}, "sac cannot start from", "muster train ppo"),
        ("ppo", "CartPole-v1", {"hidden": (32,)}, "has hidden=(64, 64)", "--hidden 64 64"),
        ("ppo", "CartPole-v1", {"activation": "relu"}, "has activation='tanh'", "tanh"),
        ("ppo", "CartPole-v1", {"shared": True}, "has shared=False", "--no-shared"),
        ("ppo", "CartPole-v1", {"normalize_obs": True}, "normalize_obs", "--no-normalize-obs"),
        ("ppo", "CartPole-v1", {"model": "gru"}, "is of the model 'mlp'", "--model mlp"),
        ("ppo", "Acrobot-v1", {}, "cloned with obs space", "CartPole-v1"),
    ],
)
def test_what_cannot_start_from_a_clone_is_told_why(clone, tmp_path, algo, env, options, what, fix):
    with pytest.raises(OptionError) as caught:
        muster.train(algo, env, from_checkpoint=clone.run_dir, run_dir=tmp_path / "run", **options)
    said = str(caught.value).splitlines()
    assert len(said) == 3 and what in said[0] and fix in said[2]
    assert not (tmp_path / "run").exists()


def test_a_classifier_is_no_policy_to_start_from_and_a_clone_is_no_classifier(clone, quick):
    labels = muster.fit("mlp", **quick)
    with pytest.raises(MusterError, match="holds no policy"):
        muster.train("ppo", "CartPole-v1", from_checkpoint=labels.run_dir)
    with pytest.raises(MusterError, match="holds no policy"):
        muster.load_policy(labels.run_dir)
    with pytest.raises(MusterError, match="holds a policy, not a classifier"):
        load_classifier(clone.run_dir)


# ---- the same bits


@pytest.fixture
def masked(tmp_path):
    return {
        "data": random_data(tmp_path, MASKED, MultiDiscrete([2, 3])),
        **{"epochs": 2, "batch_size": 16, "lr": 0.05, "quiet": True, "normalize_obs": True},
    }


def test_any_number_of_replicas_and_a_resume_come_to_the_same_clone(masked, tmp_path):
    one = muster.fit("mlp", run_dir=tmp_path / "one", **masked)
    two = muster.fit("mlp", run_dir=tmp_path / "two", replicas=2, **masked)
    part = muster.fit("mlp", run_dir=tmp_path / "part", **{**masked, "epochs": 1, "horizon": 2})
    rest = muster.fit(run_dir=part.run_dir, resume=True, epochs=2, quiet=True)
    assert one.model_sha256 == two.model_sha256 == rest.model_sha256 != part.model_sha256
    assert one.test_loss == two.test_loss == rest.test_loss
    again = muster.fit(run_dir=two.run_dir, resume=True, quiet=True)  # only completed
    assert (again.test_loss, again.test_accuracy) == (two.test_loss, two.test_accuracy)


def test_a_step_of_a_clone_changes_the_policy_and_not_the_value(masked):
    options = FitOptions(weight_decay=0.1, loss="auto")
    network = make_network("mlp", load_data(masked["data"]), options)
    before = {k: v.copy() for k, v in network.weights.state_dict().items()}
    grad, stats = np.zeros(network.weights.vector.size, np.float32), np.zeros(3)
    data = load_data(masked["data"])
    network.gradient(data.x_train, data.y_train, len(data.y_train), grad, stats, np.zeros(0))
    network.step(grad, np.zeros((1, 0), np.float32), np.array([10.0]), 0.1)
    changed = {k for k, v in network.weights.state_dict().items() if (v != before[k]).any()}
    assert changed and all(name.startswith("policy.") for name in changed)


# ---- losses


def losses_of(tmp_path, obs_space, action_space, **options):
    """Return a new network for random episodes, its outputs, and what it makes of the test set."""
    data = load_data(random_data(tmp_path, obs_space, action_space))
    network = make_network("mlp", data, FitOptions(**options))
    with torch.no_grad():
        network.weights.vector[:] *= 3  # outputs that differ from each other
        outputs = torch.from_numpy(network.computed(data.x_test, network.head.outputs))
    return data, network, outputs, network.judge_all(data.x_test, data.y_test)


def test_the_loss_of_masked_numbers_is_the_cross_entropy_of_what_is_legal(tmp_path):
    data, _, outputs, found = losses_of(tmp_path, MASKED, MultiDiscrete([2, 3]))
    total, right = 0.0, np.ones(len(data.y_test), bool)
    for number, piece in enumerate((slice(0, 2), slice(2, 5))):
        legal = torch.from_numpy(data.x_test["action_mask"][:, piece] != 0)
        logits = outputs[:, piece].masked_fill(~legal, -torch.inf)
        wanted = torch.from_numpy(data.y_test[:, number])
        total -= float(Categorical(logits=logits).log_prob(wanted).sum())
        right &= (logits.argmax(1) == wanted).numpy()
    assert found.tolist() == pytest.approx([total, right.sum(), len(right)], rel=1e-5)


@pytest.mark.parametrize("loss", ["auto", "mse", "nll"])
def test_the_loss_of_a_box_is_a_squared_error_or_a_likelihood(tmp_path, loss):
    data, network, outputs, found = losses_of(tmp_path, OBS, Box(-2, 2, (2,)), loss=loss)
    actions, mean = torch.from_numpy(data.y_test), outputs[:, :2]
    if loss == "nll":
        wanted = -Normal(mean, outputs[:, 2:].exp()).log_prob(actions).sum()
    else:
        wanted = (mean - actions).square().mean(1).sum()
    assert found[0] == pytest.approx(float(wanted), rel=1e-5) and not network.has_accuracy


def test_a_clone_of_numbers_has_a_loss_and_no_accuracy(tmp_path):
    data = random_data(tmp_path, OBS, Box(-2, 2, (1,)))
    more = {"epochs": 3, "batch_size": 16, "lr": 0.01, "quiet": True}
    done = muster.fit("mlp", data, run_dir=tmp_path / "run", loss="nll", **more)
    assert done.test_accuracy is None and done.best_test_accuracy is None
    assert done.best_test_loss <= done.test_loss
    lines = [json.loads(each) for each in (done.run_dir / "metrics.jsonl").read_text().splitlines()]
    assert all("eval/loss" in each and "eval/accuracy" not in each for each in lines)
    assert min(each["eval/loss"] for each in lines) == done.best_test_loss
    assert done.clone.act(np.zeros((3, 3), np.float32)).shape == (3, 1)
    with pytest.raises(OptionError, match=r"stop_at=0\.5 is not possible"):
        muster.fit("mlp", data, stop_at=0.5)


def test_observations_are_normalised_by_the_training_episodes(tmp_path):
    data = load_data(random_data(tmp_path, OBS, Discrete(3)))
    network = make_network("mlp", data, FitOptions(normalize_obs=True))
    normal = network.module.normalizer(torch.from_numpy(data.x_train)).numpy()
    np.testing.assert_allclose(normal.mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(normal.std(0), 1, atol=1e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": "mse"}, "learnt by cross-entropy"),
        ({"norm": "group"}, "norm=group is not possible"),
        ({"augment": "flip"}, "wrong for its mirror image"),
    ],
)
def test_an_option_that_episodes_cannot_have_is_refused(tmp_path, options, message):
    data = random_data(tmp_path, OBS, Discrete(3))
    with pytest.raises(MusterError, match=message):
        muster.fit("mlp", data, run_dir=tmp_path / "run", **options)
    with pytest.raises(OptionError, match='model="lstm" is not possible'):
        muster.fit("lstm", data, run_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("option", [{"hidden": (8,)}, {"loss": "nll"}, {"normalize_obs": True}])
def test_labelled_data_has_no_options_of_policies(quick, option):
    with pytest.raises(OptionError, match="cloned from recorded episodes"):
        muster.fit("mlp", **quick, **option)


# ---- the way from the command line


def test_the_commands_record_clone_and_evaluate(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    few = ["--env-steps", "256", "--num-envs", "8", "--rollout", "16", "--eval-every", "0"]
    more = ["--eval-episodes", "1", "--workers", "0", "--quiet", "--run-dir"]
    assert main(["train", "ppo", "CartPole-v1", *few, *more, "first"]) == 0
    record = ["eval", "first", "--episodes", "6", "--save-episodes"]
    assert main([*record, "played"]) == 0
    said = capsys.readouterr().out
    assert "steps written to played" in said and "fit mlp --data played" in said
    assert main([*record, "again", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    data = load_data("played")
    assert told["saved_steps"] == len(data.y_train) + len(data.y_test) == sum(told["returns"])
    assert data.episodes == (5, 1) and data.env == "CartPole-v1"
    assert main([*record, "played"]) == 2
    assert "there is something in played already" in capsys.readouterr().err

    words = ["fit", "mlp", "--data", "played", "--epochs", "1", "--run-dir", "copy", "--quiet"]
    assert main(words) == 0
    assert "mlp on played: test accuracy" in capsys.readouterr().out
    assert main(["eval", "copy", "--episodes", "2"]) == 0
    assert "CartPole-v1: mean return" in capsys.readouterr().out
    assert main(["train", "dqn", "CartPole-v1", "--from-checkpoint", "copy"]) == 2
    assert capsys.readouterr().err.count("\n") == 3
    assert main(["fit", "mlp", "--data", "first"]) == 2
    assert "muster eval" in capsys.readouterr().err.splitlines()[2]


def test_a_clone_without_the_name_of_an_environment_is_played_where_it_is_told(tmp_path, capsys):
    space, actions = gym.make("CartPole-v1").observation_space, Discrete(2)
    episodes = random_episodes(Box(-1, 1, (4,), np.float32), actions)
    data = write_episodes(tmp_path / "played", space, actions, episodes)
    run = str(tmp_path / "run")
    muster.fit("mlp", data, run_dir=run, epochs=1, batch_size=8, quiet=True)
    assert main(["eval", run, "--episodes", "1"]) == 2
    assert f"try: muster eval {run} --env CartPole-v1" in capsys.readouterr().err
    assert main(["eval", run, "--episodes", "1", "--env", "CartPole-v1"]) == 0


def test_what_is_recorded_is_what_the_policy_saw_and_did(expert):
    from muster.data.episodes import read_episodes

    meta, episodes = read_episodes(expert[0])
    assert {name: meta[name] for name in about("CartPole-v1", *CARTPOLE)} == about(
        "CartPole-v1", *CARTPOLE
    )
    assert [float(each.reward.sum()) for each in episodes] == list(expert[1].returns)
    env = gym.make("CartPole-v1").unwrapped
    first = episodes[0]
    env.reset()
    env.state = first.obs[0].astype(np.float64)
    for action, seen in zip(first.action[:50], first.obs[1:], strict=False):
        np.testing.assert_allclose(env.step(int(action))[0], seen, rtol=1e-3, atol=1e-4)
