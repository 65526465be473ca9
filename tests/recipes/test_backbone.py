"""`--backbone`: convolutions of `muster fit` in a policy, for every algorithm, frozen or not."""

import shutil
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch

import muster
from muster.algos.ppo import PPO, PPOConfig
from muster.cli.main import main
from muster.errors import OptionError
from muster.fitting import load_classifier
from muster.recipes.backbone import first_parts, with_backbone
from muster.recipes.settings import resolve

pytestmark = pytest.mark.timeout(120)

IMAGE = gym.spaces.Box(0, 255, (12, 12, 1), np.uint8)
MODELS = ["resnet8-batch", "resnet8-group", "resnet8-none", "impala_cnn", "nature_cnn"]
TINY = {"env_steps": 64, "num_envs": 8, "workers": 0, "eval_every": 0, "eval_episodes": 1}
RUN = {"stop_at": None, "quiet": True}


class Bright(gym.Env):
    """Ten steps; the action is told by the brightness of the picture."""

    observation_space = IMAGE
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._look(), {}

    def step(self, action):
        self.steps += 1
        return self._look(), 1.0, self.steps == 10, False, {}

    def _look(self):
        return self.np_random.integers(0, 256, (12, 12, 1)).astype(np.uint8)


class Turned(Bright):
    """The same, with one number as action."""

    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)


@pytest.fixture(autouse=True, scope="module")
def registered():
    gym.register("Bright-v0", Bright)
    gym.register("Turned-v0", Turned)
    yield
    for name in ("Bright-v0", "Turned-v0"):
        del gym.registry[name]


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """Return a function that gives the run of a network fitted to images of 12 x 12 x 1."""
    place = tmp_path_factory.mktemp("fitted")
    rng = np.random.default_rng(0)
    x = rng.integers(0, 120, (48, 12, 12, 1)).astype(np.uint8)
    y = np.arange(48) % 2
    x[y == 1, :6] += 100
    np.savez(place / "bars.npz", x_train=x[:32], y_train=y[:32], x_test=x[32:], y_test=y[32:])
    runs = {}

    def run_of(name):
        if name not in runs:
            model, _, norm = name.partition("-")
            norm = norm or "batch"
            more = {"epochs": 2, "batch_size": 16, "lr": 0.01, "quiet": True, "augment": "none"}
            run = place / name
            muster.fit(model, place / "bars.npz", norm=norm, run_dir=run, **more)
            runs[name] = run
        return runs[name]

    return run_of


def begun(run, model, frozen=False, algo="ppo", env="Bright-v0"):
    """Return the settings of a run with a backbone, and its agent."""
    given = {"backbone": str(run), "model": model, "freeze_backbone": frozen}
    settings = with_backbone(resolve(algo, env, given))
    agent = PPO(settings.config, IMAGE, gym.spaces.Discrete(2), 3)
    first_parts(str(run), agent)
    return settings, agent


@pytest.mark.parametrize("name", MODELS)
def test_the_features_are_those_of_the_fitted_network(fitted, name):
    run, model = fitted(name), name.partition("-")[0]
    settings, agent = begun(run, model)
    images = torch.from_numpy(
        np.random.default_rng(1).integers(0, 256, (5, 12, 12, 1)).astype(np.uint8)
    )
    classifier = load_classifier(run)
    classifier.judge(images.numpy(), np.zeros(5, np.int64))  # puts running averages in place
    module = classifier.module.eval()
    with torch.no_grad():
        wanted = module.network.encoder(module.standardize(images))
        found = agent.model.eval().encoder(images)
    if model == "resnet8":
        # A classifier takes the mean over the image; an encoder keeps cells of it.
        found = found.reshape(5, 64, 3, 3).mean((2, 3))
        assert settings.config.model == name.replace("-", "_")
    if model == "impala_cnn":
        assert settings.config.model == "impala_cnn_none"
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4)


ALGOS = [("ppo", "Bright-v0"), ("dqn", "Bright-v0"), ("sac", "Turned-v0")]
SLOW = [("a2c", "Bright-v0"), ("a3c", "Bright-v0"), ("pqn", "Bright-v0"), ("impala", "Bright-v0")]
SLOW += [("appo", "Bright-v0"), ("apex", "Bright-v0")]
OWN = {
    "dqn": {"learning_starts": 16, "train_every": 8, "batch_size": 8, "buffer_size": 200},
    "apex": {"learning_starts": 16, "train_every": 8, "batch_size": 8, "buffer_size": 200},
    "sac": {"learning_starts": 16, "batch_size": 8, "buffer_size": 200, "hidden": (8,)},
    "ppo": {"rollout": 8},
    "pqn": {"rollout": 8},
}


@pytest.mark.parametrize(
    ("algo", "env"), [*ALGOS, *(pytest.param(*each, marks=pytest.mark.slow) for each in SLOW)]
)
def test_a_frozen_backbone_stays_and_the_rest_learns_with_every_algorithm(
    fitted, tmp_path, algo, env
):
    run = fitted("resnet8-batch")
    own = {**TINY, **OWN.get(algo, {}), "env_steps": 32 if algo == "sac" else 64}
    if algo == "apex":
        own["dueling"] = False
    done = muster.train(
        algo,
        env,
        run_dir=tmp_path / "run",
        model="resnet8",
        backbone=str(run),
        freeze_backbone=True,
        **own,
        **RUN,
    )
    assert done.train_iter > 0
    first = muster.load_policy(tmp_path / "run" / "checkpoints" / "start" / "step-0")
    last = muster.load_policy(tmp_path / "run" / "checkpoints" / f"step-{done.env_steps}")
    one, other = (each.agent.weights.state_dict() for each in (first, last))
    trunk = [name for name in one if "encoder." in name]
    assert any("running_var" in name for name in trunk)
    assert all((one[name] == other[name]).all() for name in trunk)
    assert any((one[name] != other[name]).any() for name in one if name not in trunk)
    source = load_classifier(run).weights.state_dict()["network.encoder.first.0.weight"]
    (mine,) = (one[name] for name in trunk if name.endswith("encoder.first.0.weight"))
    np.testing.assert_array_equal(mine, source)


def test_the_critics_of_sac_start_from_the_backbone_as_well(fitted, tmp_path):
    run = fitted("resnet8-batch")
    own = {**TINY, **OWN["sac"], "env_steps": 16}
    more = {"run_dir": tmp_path / "run", "model": "resnet8", "backbone": str(run)}
    muster.train("sac", "Turned-v0", **more, **own, **RUN)
    from muster.run import RunDirectory

    opened = RunDirectory.open(tmp_path / "run" / "checkpoints" / "start" / "step-0")
    parts = opened.checkpoints.load(opened.checkpoint).parts
    source = load_classifier(run).weights.state_dict()["network.encoder.first.0.weight"]
    for critic in parts["critics"].values():
        for which in ("critic", "target"):
            (name,) = (each for each in critic[which] if each.endswith("encoder.first.0.weight"))
            np.testing.assert_array_equal(critic[which][name], source)


def test_workers_and_a_resume_without_the_backbone_come_to_the_same_policy(fitted, tmp_path):
    source = tmp_path / "source"
    shutil.copytree(fitted("resnet8-group"), source)
    more = {**TINY, **RUN, **OWN["ppo"], "model": "resnet8", "backbone": str(source), "slots": 2}
    more |= {"env_steps": 128, "checkpoint_every": 64}
    whole = muster.train("ppo", "Bright-v0", run_dir=tmp_path / "whole", **more)
    part = {**more, "env_steps": 64}
    muster.train("ppo", "Bright-v0", run_dir=tmp_path / "part", **part)
    shutil.rmtree(source)
    resumed = muster.resume(tmp_path / "part", env_steps=128, quiet=True)
    assert resumed.policy_sha256 == whole.policy_sha256
    text = (tmp_path / "part" / "config.yaml").read_text()
    assert f"backbone: {source}" in text and "model: resnet8_group" in text
    with pytest.raises(OptionError, match="backbone='other' is not possible"):
        muster.resume(tmp_path / "part", backbone="other", quiet=True)


@pytest.mark.slow
def test_nodes_start_from_the_backbone(fitted, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    run = tmp_path / "fit"
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 256, (24, 36, 40, 3)).astype(np.uint8), np.arange(24) % 2
    np.savez(tmp_path / "x.npz", x_train=x[:16], y_train=y[:16], x_test=x[16:], y_test=y[16:])
    fit = {"epochs": 1, "batch_size": 8, "quiet": True, "augment": "none", "run_dir": run}
    muster.fit("resnet8", tmp_path / "x.npz", **fit)
    more = {**TINY, **RUN, **OWN["ppo"], "model": "resnet8", "backbone": str(run), "slots": 2}
    found = {
        muster.train(
            "ppo", "golden_env:Halves-v0", **{**more, "workers": n}, run_dir=tmp_path / str(n)
        ).policy_sha256
        for n in (0, 2)
    }
    assert len(found) == 1


def test_a_policy_is_a_backbone_too(fitted, tmp_path):
    more = {**TINY, **RUN, "rollout": 8, "model": "resnet8"}
    first = muster.train("ppo", "Bright-v0", run_dir=tmp_path / "first", **more)
    settings, agent = begun(first.run_dir, "resnet8")
    assert settings.config.model == "resnet8"
    best = muster.load_policy(first.run_dir).agent.weights.state_dict()
    mine = agent.weights.state_dict()
    trunk = {name for name in mine if name.startswith("encoder.")}
    assert all((mine[name] == best[name]).all() for name in trunk)
    assert any((mine[name] != best[name]).any() for name in mine.keys() - trunk)


@pytest.mark.parametrize(
    ("source", "options", "what", "fix"),
    [
        ("resnet8-batch", {"model": "impala_cnn"}, "is of the model 'resnet8'", "--model resnet8"),
        ("resnet8-batch", {}, "is of the model 'resnet8'", "--model resnet8"),
        ("resnet8-batch", {"model": "resnet20"}, "is of the model 'resnet8'", "--model resnet8"),
        (
            "nature_cnn",
            {"model": "nature_cnn", "freeze_backbone": True},
            "freeze_backbone=True is not possible with model=nature_cnn",
            "--model impala_cnn",
        ),
        (
            "resnet8-batch",
            {"model": "resnet8", "from_checkpoint": "x"},
            "cannot be used together",
            "--from-checkpoint",
        ),
        (None, {"freeze_backbone": True}, "without a backbone", "--backbone"),
        (None, {"backbone": "nowhere", "model": "resnet8"}, "there is no run in", "runs/"),
    ],
)
def test_a_backbone_that_does_not_fit_is_refused(fitted, tmp_path, source, options, what, fix):
    given = options if source is None else {"backbone": str(fitted(source)), **options}
    with pytest.raises(muster.MusterError) as caught:
        muster.train("ppo", "Bright-v0", run_dir=tmp_path / "run", **given)
    said = str(caught.value).splitlines()
    assert len(said) == 3 and what in said[0] and fix in said[2]
    assert not (tmp_path / "run").exists()


def test_other_shapes_are_named_both_and_the_command_ends_with_2(
    fitted, tmp_path, capsys, monkeypatch
):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    run = fitted("resnet8-batch")
    words = ["train", "ppo", "golden_env:Halves-v0", "--model", "resnet8", "--workers", "0"]
    assert main([*words, "--backbone", str(run), "--run-dir", str(tmp_path / "run")]) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 3
    assert "(16, 1, 3, 3)" in said[0] and "(16, 3, 3, 3)" in said[1]
    assert not (tmp_path / "run").exists()


def test_vectors_have_no_convolutions_to_start(fitted, tmp_path):
    agent = PPO(PPOConfig(), gym.spaces.Box(-1, 1, (3,)), gym.spaces.Discrete(2))
    with pytest.raises(OptionError, match="has no convolutions to start from"):
        first_parts(str(fitted("nature_cnn")), agent)
