"""An algorithm outside of muster: REINFORCE of the examples, by module:name and by its name."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium import spaces

import muster
from muster import OptionError
from muster.algos import ActorCriticConfig, Algorithm, TorchLossAgent
from muster.cli.main import main
from muster.errors import TaskError
from muster.nets.policy_net import Rollout
from muster.recipes import algorithms
from muster.recipes.policy import load_policy

EXAMPLES = Path(__file__).parents[2] / "examples"
SPEC = "reinforce:reinforce"
SMALL = {
    "env_steps": 1_024,
    "eval_every": 0,
    "eval_episodes": 2,
    "checkpoint_every": 512,
    "hidden": (16,),
    "quiet": True,
}


@pytest.fixture(autouse=True)
def nothing_registered(monkeypatch):
    """Begin in the folder of the example, as a process that has registered nothing."""
    monkeypatch.chdir(EXAMPLES)
    monkeypatch.setattr(algorithms, "_own", {})


def train(run, **options):
    return muster.train(SPEC, "CartPole-v1", run_dir=str(run), **{**SMALL, **options})


def three_lines(capsys):
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3, lines
    return lines


@pytest.mark.timeout(600)
def test_it_trains_with_workers_resumes_and_is_evaluated_like_any_other(tmp_path, capsys):
    whole = train(tmp_path / "serial", workers=0)
    there = train(tmp_path / "two", workers=2, env_steps=512)
    resumed = muster.resume(tmp_path / "two", algo=SPEC, env_steps=1_024, quiet=True)
    assert there.policy_sha256 != resumed.policy_sha256 == whole.policy_sha256
    lines = (tmp_path / "serial" / "metrics.jsonl").read_text().splitlines()
    assert {"train/policy_loss", "train/value_loss", "train/entropy"} <= json.loads(lines[0]).keys()
    assert main(["eval", str(tmp_path / "two"), "--episodes", "2", "--algo", SPEC]) == 0
    assert "mean return" in capsys.readouterr().out
    assert load_policy(tmp_path / "two", algo=SPEC).act(np.zeros(4, np.float32)) in (0, 1)


def test_the_commands_that_a_run_prints_name_it_again(tmp_path, capsys):
    run = tmp_path / "run"
    words = ["--workers", "0", "--env-steps", "512", "--eval-episodes", "1", "--quiet"]
    assert main(["train", SPEC, "CartPole-v1", *words, "--run-dir", str(run)]) == 0
    (line,) = [each for each in capsys.readouterr().out.splitlines() if " play " in each]
    verb, *rest = line.split()[line.split().index("play") :]
    assert rest[-2:] == ["--algo", SPEC]
    assert main(["eval", *rest, "--episodes", "1"]) == 0 and verb == "play"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_it_trains_the_same_policy_on_ray(tmp_path):
    found = {
        train(tmp_path / engine, workers=2, engine=engine).policy_sha256
        for engine in ("local", "ray")
    }
    assert len(found) == 1


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_it_learns_to_balance(tmp_path):
    options = {"env_steps": 200_000, "hidden": (64, 64), "eval_every": 25_600, "stop_at": 400.0}
    assert train(tmp_path / "run", workers=0, **options).stopped_by == "target"


SCRIPT = """
import muster
from reinforce import Reinforce, ReinforceConfig
from muster.algos import Algorithm

class Mine(Reinforce):
    pass

muster.register_algorithm("mine", Algorithm(ReinforceConfig, Mine))
options = dict(env_steps=512, eval_every=0, eval_episodes=1, hidden=(16,), quiet=True)
found = [muster.train("mine", "CartPole-v1", workers=n, **options) for n in (0, 2)]
again = muster.resume(found[1].run_dir, env_steps=1024, quiet=True)
print(len({each.policy_sha256 for each in found}), again.env_steps, again.algo)
"""


@pytest.mark.timeout(600)
def test_one_of_a_script_works_with_workers_by_its_registered_name(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(EXAMPLES), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert (done.returncode, done.stdout) == (0, "1 1024 mine\n"), done.stderr


def test_its_own_options_are_in_the_help_and_checked(capsys):
    with pytest.raises(SystemExit):
        main(["train", SPEC, "CartPole-v1", "--help"])
    help_ = capsys.readouterr().out
    assert "--baseline" in help_ and "policy gradient of whole returns" in help_
    assert main(["train", SPEC, "CartPole-v1", "--no-baseline", "--gae-lambda", "0.9"]) == 2
    assert three_lines(capsys)[0].startswith("muster: --no-baseline and --gae-lambda 0.9")
    assert main(["train", SPEC, "CartPole-v1", "--baselin"]) == 2
    assert "the nearest is --baseline" in three_lines(capsys)[1]


@pytest.mark.parametrize(
    ("spec", "what", "why", "fix"),
    [
        (
            "no_such_module:x",
            "the algorithm 'no_such_module:x' cannot be loaded",
            "ModuleNotFoundError: No module named 'no_such_module'",
            'python -c "import no_such_module"',
        ),
        (
            "reinforce:reinforc",
            "the algorithm 'reinforce:reinforc' cannot be loaded",
            "reinforce has no 'reinforc'",
            "muster train reinforce:reinforce CartPole-v1",
        ),
        (
            "reinforce:Reinforce",
            "'reinforce:Reinforce' is not an algorithm",
            "it is <class 'reinforce.Reinforce'>",
            "muster.algos.Algorithm(MyConfig, MyAgent), "
            "with a subclass of muster.algos.InStepConfig",
        ),
        (
            "a b:c",
            "the algorithm 'a b:c' is not possible",
            "your own code is given as a module and the name of the algorithm in it",
            "muster train my_package.my_module:my_algorithm CartPole-v1",
        ),
    ],
)
def test_what_is_no_algorithm_is_refused_on_three_lines(capsys, spec, what, why, fix):
    assert main(["train", spec, "CartPole-v1"]) == 2
    lines = three_lines(capsys)
    assert lines == [f"muster: {what}", f"  why: {why}", f"  try: {fix}"]


def test_a_name_that_is_taken_or_none_is_refused():
    mine, other = Algorithm(ActorCriticConfig, print), Algorithm(ActorCriticConfig, len)
    muster.register_algorithm("mine", mine)
    muster.register_algorithm("mine", Algorithm(ActorCriticConfig, print))  # a cell run again
    for name, algorithm, message in (
        ("mine", other, "the algorithm 'mine' is already registered\n.*ambiguous\n.*my_mine"),
        ("ppo", mine, "the algorithm 'ppo' is built into muster\n"),
        ("a:b", mine, "name='a:b' is not possible\n"),
        ("", mine, "name='' is not possible\n"),
        ("x", ActorCriticConfig, "'x' is not an algorithm\n  why: it is <class"),
        (
            "x",
            Algorithm(dict, print),
            "'x' is not an algorithm\n  why: its config <class 'dict'> is not",
        ),
        (
            "x",
            Algorithm(Bare, print),
            "'x' is not an algorithm\n  why: its config Bare has no FIXED_ON",
        ),
        (
            "x",
            Algorithm(Odd, print),
            "its config Odd has no a PROGRAM that is one of gradients, in_step",
        ),
        ("x", Algorithm(ActorCriticConfig, 3), "its agent 3 cannot be called"),
    ):
        with pytest.raises(OptionError, match=message):
            muster.register_algorithm(name, algorithm)


@dataclasses.dataclass(frozen=True)
class Bare:
    """A dataclass that answers nothing."""


@dataclasses.dataclass(frozen=True)
class Odd(ActorCriticConfig):
    """A program that there is not."""

    PROGRAM = "orbit"


def test_an_unknown_name_is_answered_with_the_nearest_of_all_that_there_are(capsys):
    muster.register_algorithm("mine", Algorithm(ActorCriticConfig, print))
    assert main(["train", "minee", "CartPole-v1"]) == 2
    assert "the nearest is 'mine'" in three_lines(capsys)[1]


@pytest.mark.parametrize("verb", ["resume", "eval", "play"])
def test_a_file_does_not_decide_which_algorithm_is_run(tmp_path, capsys, monkeypatch, verb):
    train(tmp_path / "run", workers=0, env_steps=512)
    monkeypatch.setattr(algorithms, "_own", {})
    monkeypatch.delitem(sys.modules, "reinforce")
    no_window = ["--video", str(tmp_path / "x.mp4")] if verb == "play" else []
    assert main([verb, str(tmp_path / "run"), *no_window]) == 2
    what, why, fix = three_lines(capsys)
    assert f"uses an algorithm from code, {SPEC!r}" in what and "must not choose the code" in why
    assert f"--algo {SPEC}" in fix and "reinforce" not in sys.modules


def test_a_package_that_is_installed_names_its_algorithms(tmp_path, monkeypatch):
    info = tmp_path / "theirs-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[muster.algorithms]\ntheirs = reinforce:reinforce\nbroken = no_such_module:x\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.syspath_prepend(str(EXAMPLES))
    options = {**SMALL, "env_steps": 512, "run_dir": str(tmp_path / "run"), "workers": 0}
    muster.train("theirs", "CartPole-v1", **options)
    monkeypatch.setattr(algorithms, "_own", {})
    assert muster.resume(tmp_path / "run", env_steps=1_024, quiet=True).env_steps == 1_024
    with pytest.raises(OptionError, match=r"'broken' cannot be loaded\n.*No module named"):
        muster.train("broken", "CartPole-v1")


class Wrong(TorchLossAgent):
    """Returns means, where a loss for each row is asked for."""

    stats = ("loss",)

    def loss(self, outputs, value, rows):
        each = value - rows.target
        return each.mean(), (each,)


class Fewer(Wrong):
    """Has a metric that it does not return."""

    stats = ("loss", "other")

    def loss(self, outputs, value, rows):
        each = value - rows.target
        return each, (each,)


@pytest.mark.parametrize(
    ("kind", "message"),
    [(Wrong, r"Wrong.loss .* the loss has shape \(\)\n"), (Fewer, "there are 1 metrics for stats")],
)
def test_a_loss_that_is_not_one_for_each_row_is_refused(kind, message):
    agent = kind(ActorCriticConfig(hidden=(8,)), spaces.Box(-1, 1, (3,)), spaces.Discrete(2))
    with pytest.raises(TaskError, match=message):
        gradient_of(agent, some_rollout(agent, 6))


@pytest.mark.parametrize(
    "actions", [spaces.Discrete(4), spaces.MultiDiscrete([2, 3]), spaces.Box(-1, 1, (2,))], ids=str
)
def test_a_loss_in_torch_gives_the_gradient_of_autograd(actions):
    from reinforce import Reinforce, ReinforceConfig

    cfg = ReinforceConfig(hidden=(8,), entropy_coef=0.03)
    agent = Reinforce(cfg, spaces.Box(-1, 1, (3,)), actions, seed=1)
    rollout = some_rollout(agent, 30)
    grad, stats = gradient_of(agent, rollout)
    outputs, value = agent.model(torch.from_numpy(rollout.obs))
    action = torch.from_numpy(rollout.action)
    if isinstance(actions, spaces.Box):
        mean, log_std = outputs.chunk(2, dim=1)
        parts = [torch.distributions.Normal(mean, log_std.exp())]
        logp, entropy = parts[0].log_prob(action).sum(1), parts[0].entropy().sum(1)
    else:
        logits = outputs.split(list(agent.head.sizes), dim=1)
        parts = [torch.distributions.Categorical(logits=each) for each in logits]
        logp = sum(part.log_prob(action[:, i]) for i, part in enumerate(parts))
        entropy = sum(part.entropy() for part in parts)
    np.testing.assert_allclose(rollout.logp, logp.detach(), atol=1e-5)
    policy_loss = -(logp * torch.from_numpy(rollout.advantage)).mean()
    value_loss = 0.5 * ((value - torch.from_numpy(rollout.target)) ** 2).mean()
    (policy_loss + 0.5 * value_loss - 0.03 * entropy.mean()).backward()
    wanted = np.concatenate([p.grad.numpy().ravel() for p in agent.model.parameters()])
    np.testing.assert_allclose(grad, wanted, atol=2e-5, rtol=2e-4)
    sums = policy_loss.item(), value_loss.item(), entropy.mean().item()
    np.testing.assert_allclose(stats, sums, atol=1e-5)


def some_rollout(agent, count):
    rng = np.random.default_rng(0)
    obs = rng.normal(size=(count, 3)).astype(np.float32)
    action = np.empty((count, agent.head.width), agent.head.dtype)
    logp, value = np.empty((2, count), np.float32)
    agent.net.act(obs, agent.noise(rng, (count,), 0), action, logp, value)
    return Rollout(obs, action, logp, value, *rng.normal(size=(2, count)).astype(np.float32))


def gradient_of(agent, rollout):
    grad, stats = np.zeros_like(agent.weights.vector), np.zeros(len(agent.stats))
    rows = np.arange(len(rollout.logp))
    agent.gradient(rollout, rows, agent.terms(0, len(rows)), grad, stats)
    return grad, stats
