"""A policy in a file of its own acts as the policy does, whatever it sees and remembers."""

import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import export_envs  # noqa: F401  # registers environments
import gymnasium as gym
import numpy as np
import onnxruntime
import pytest
import torch

import muster
from muster.cli.main import main
from muster.exporting import ExportError
from muster.exporting import graph as graphs
from muster.exporting.heads import BoxHead, CategoryHead
from muster.exporting.proof import draw_observations

SMALL = {"eval_every": 0, "eval_episodes": 1, "quiet": True, "stop_at": None, "workers": 0,
         "hidden": (8, 8), "checkpoint_every": 0}  # fmt: skip
IN_STEP = {
    "env_steps": 128,
    "num_envs": 4,
    "rollout": 32,
    "slots": 4,
    "minibatches": 1,
    "epochs": 1,
}
REPLAY = {"env_steps": 80, "learning_starts": 40, "batch_size": 16, "buffer_size": 500}
SEQUENCES = {"sequence": 4, "overlap": 2, "burn_in": 2}


def trained(run, algo, env, **options):
    muster.train(algo, env, run_dir=str(run), **{**SMALL, **options})
    return run


def session_of(path):
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


SLOW = pytest.mark.slow
KINDS = [
    pytest.param("ppo", "XUneven-v0", {**IN_STEP, "normalize_obs": True}, id="normalised-bounds"),
    pytest.param("ppo", "XMasked-v0", {**IN_STEP, "model": "lstm"}, id="lstm-masked", marks=SLOW),
    pytest.param("dqn", "XParts-v0", {**REPLAY, "dueling": True, "noisy": True, "quantiles": 3},
                 id="dict-noisy-quantiles", marks=SLOW),
    pytest.param("r2d2", "XParts-v0", {**REPLAY, **SEQUENCES, "batch_size": 4}, id="r2d2-dict",
                 marks=SLOW),
    pytest.param("sac", "XGrid-v0", REPLAY, id="sac-grid", marks=SLOW),
    pytest.param("ppo", "XChoices-v0", {**IN_STEP, "model": "gru"}, id="gru-choices", marks=SLOW),
    pytest.param("ppo", "XImages-v0", IN_STEP, id="cnn", marks=SLOW),
    pytest.param("ppo", "XImages-v0", {**IN_STEP, "model": "impala_cnn"}, id="big-cnn", marks=SLOW),
    pytest.param("ppo", "XImages-v0", {**IN_STEP, "model": "resnet8"}, id="resnet", marks=SLOW),
    pytest.param("ppo", "XImages-v0", {**IN_STEP, "model": "lstm"}, id="cnn-lstm", marks=SLOW),
    pytest.param("dqn", "XImages-v0", {**REPLAY, **SEQUENCES, "model": "gru", "last_action": True},
                 id="dqn-cnn-gru", marks=SLOW),
    pytest.param("apex", "XParts-v0", REPLAY, id="apex", marks=SLOW),
    pytest.param("a2c", "XParts-v0", {"env_steps": 128}, id="a2c", marks=SLOW),
    pytest.param("impala", "XMasked-v0", {"env_steps": 128}, id="impala", marks=SLOW),
    pytest.param("appo", "XMasked-v0", {"env_steps": 128, "model": "lstm"}, id="appo", marks=SLOW),
    pytest.param("a3c", "XGrid-v0", {"env_steps": 128}, id="a3c", marks=SLOW),
    pytest.param("pqn", "XParts-v0", {"env_steps": 128}, id="pqn", marks=SLOW),
]  # fmt: skip


@pytest.mark.parametrize("to", ["onnx", pytest.param("torch-export", marks=SLOW)])
@pytest.mark.parametrize(("algo", "env", "options"), KINDS)
def test_a_file_acts_as_the_policy_does(tmp_path, algo, env, options, to):
    result = muster.export(trained(tmp_path / "run", algo, env, **options), to=to)
    assert result.proof.observations == 1_000
    assert result.proof.ties == (result.proof.different or 0)
    assert result.path.parent == tmp_path / "run"


@pytest.fixture(scope="module")
def pendulum(tmp_path_factory):
    """Return the run of a PPO on Pendulum-v1, with observations normalised."""
    run = tmp_path_factory.mktemp("pendulum") / "run"
    return trained(run, "ppo", "Pendulum-v1", normalize_obs=True, **IN_STEP)


@pytest.fixture(scope="module")
def counted(tmp_path_factory):
    """Return the run of a PPO whose actions are 5, 6 and 7, of a Dict observation."""
    run = tmp_path_factory.mktemp("parts") / "run"
    return trained(run, "ppo", "XParts-v0", model="lstm", **IN_STEP)


@pytest.fixture(scope="module")
def exported(counted, tmp_path_factory):
    """Return what came of exporting it to ONNX."""
    return muster.export(counted, out=tmp_path_factory.mktemp("onnx") / "policy.onnx")


def test_a_file_says_what_it_is_and_actions_have_the_numbers_of_the_environment(exported):
    result = exported
    session = session_of(result.path)
    about = json.loads(session.get_modelmeta().custom_metadata_map["muster.json"])
    assert (about["env"], about["algo"]) == ("XParts-v0", "ppo")
    assert about["policy_sha256"] == result.policy_sha256
    assert list(about["inputs"]) == ["action", "image", "memory", "switches", "memory_"]
    assert about["inputs"]["image"] == {"shape": ["batch", 12, 12, 3], "dtype": "uint8"}
    assert list(about["outputs"]) == ["action_", "next_memory"]
    assert [each.name for each in session.get_inputs()] == list(about["inputs"])
    for rows in (1, 7):
        inputs = {
            name: np.zeros((rows, *each["shape"][1:]), each["dtype"])
            for name, each in about["inputs"].items()
        }
        inputs["memory"] += 2
        action, memory = session.run(None, inputs)
        assert set(action.tolist()) <= {5, 6, 7} and action.shape == (rows,)
        assert memory.shape == (rows, about["inputs"]["memory_"]["shape"][1])


def test_a_torch_file_is_an_archive_that_says_the_same(pendulum, tmp_path):
    result = muster.export(pendulum, to="torch-export", out=tmp_path / "policy.pt2")
    with zipfile.ZipFile(result.path) as archive:
        (name,) = [each for each in archive.namelist() if each.endswith("muster.json")]
        about = json.loads(archive.read(name))
    assert (about["env"], about["inputs"]["obs"]["dtype"]) == ("Pendulum-v1", "float32")
    (action,) = torch.export.load(str(result.path)).module()(torch.zeros(1, 3))
    policy = muster.load_policy(pendulum)
    assert action.numpy() == pytest.approx(policy.act(np.zeros((1, 3), np.float32)), abs=1e-6)


@pytest.mark.parametrize(
    ("head", "method", "run"),
    [(BoxHead, "choose", "pendulum"), (CategoryHead, "to_env", "counted")],
)
def test_a_file_that_differs_is_not_written(head, method, run, request, tmp_path, monkeypatch):
    right = getattr(head, method)
    monkeypatch.setattr(head, method, lambda self, x: right(self, x) + 1)
    out = tmp_path / "policy.pt2"
    with pytest.raises(ExportError, match="differs from the policy, and was not written") as raised:
        muster.export(request.getfixturevalue(run), to="torch-export", out=out)
    assert raised.value.run_failed and list(tmp_path.iterdir()) == []


@SLOW
def test_a_tie_is_counted_and_is_no_difference(counted, tmp_path, monkeypatch):
    class Flipped(CategoryHead):
        """Takes the last of outputs that are equal, as another runtime might."""

        def choose(self, outputs):
            return super().choose(outputs.flip(1)) * -1 + (outputs.shape[1] - 1)

    def equal(agent, space):
        with torch.no_grad():
            agent.model.policy.weight.zero_()
            agent.model.policy.bias.zero_()
        graph = right(agent, space)
        graph.head = Flipped([3], space)
        return graph

    right = graphs.graph_of
    monkeypatch.setattr("muster.exporting.export.graph_of", equal)
    proof = muster.export(counted, to="torch-export", out=tmp_path / "policy.pt2").proof
    assert proof.different == proof.ties >= 1_000
    assert "all of them ties" in str(proof)


def test_the_command_says_what_the_file_takes_and_plays_episodes(pendulum, tmp_path, capsys):
    out = tmp_path / "policy.onnx"
    assert main(["export", str(pendulum), "--out", str(out), "--episodes", "1"]) == 0
    printed = capsys.readouterr().out
    assert "takes    obs float32 [batch, 3]" in printed
    assert "returns  action float32 [batch, 1]" in printed
    assert re.search(r"proved   greatest difference of an action \S+ on 1,000", printed)
    assert re.search(r"played   mean return (\S+), of the policy itself \1$", printed, re.MULTILINE)
    assert main(["export", str(pendulum), "--out", str(out)]) == 0  # an older export is replaced


@pytest.mark.parametrize(
    ("words", "said", "to_try"),
    [
        (["--to", "onxx"], "--to onxx is not possible", "--to onnx"),
        (["--to", "torchexport"], "--to torchexport is not possible", "--to torch-export"),
        (["--out", "policy.bin"], "ends in .onnx", "--out policy.onnx"),
        (["--out", "absent/policy.onnx"], "there is no folder absent", "--out policy.onnx"),
        (["--out", "mine.onnx"], "is not an export of muster", "--out my_mine.onnx"),
        (["--episodes", "-1"], "--episodes -1 is not possible", "--episodes 1"),
        (["--seed", "-1"], "--seed -1 is not possible", "--seed 1"),
    ],
)
def test_bad_input_is_refused_in_three_lines(
    words, said, to_try, pendulum, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.onnx").write_bytes(b"something else")
    assert main(["export", str(pendulum), *words]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3 and said in " ".join(lines) and to_try in lines[2]
    assert (tmp_path / "mine.onnx").read_bytes() == b"something else"


def test_what_onnx_needs_is_named_with_the_line_that_installs_it(pendulum, monkeypatch, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["export", str(pendulum)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3 and "onnxruntime" in lines[0] and "[export]" in lines[2]


class Chooses(torch.nn.Module):
    """A network that torch cannot trace: what it computes depends on a value."""

    def __init__(self, obs_space, n_outputs):
        super().__init__()
        self.layer = torch.nn.Linear(obs_space.shape[0], n_outputs)

    def forward(self, obs):
        outputs = self.layer(obs)
        return (outputs if outputs.sum() > 0 else -outputs), outputs.sum(1)


def test_a_network_that_cannot_be_traced_is_refused(tmp_path):
    run = trained(tmp_path / "run", "ppo", "Pendulum-v1", model=Chooses, **IN_STEP)
    with pytest.raises(ExportError, match="cannot be exported to torch-export"):
        muster.export(run, to="torch-export", model=Chooses)
    assert not list(run.glob("policy*"))


def test_the_program_of_the_docs_needs_neither_torch_nor_muster(exported):
    page = Path(__file__).parents[2] / "docs" / "export.md"
    program = page.read_text().partition("# From here on")[2].partition("```")[0]
    only = "import sys\nfor name in ('torch', 'muster', 'gymnasium'): sys.modules[name] = None\n"
    act = "policy.act([0.0, 0.1, 0.02, -0.1]) in (0, 1)"
    assert act in program
    mine = (
        "[policy.act(np.zeros((2, 2)), np.zeros((12, 12, 3)), 2, [0, 1, 0]) in (5, 6, 7)"
        " for step in range(3)]"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"{only}#{program.replace(act, mine)}"],
        cwd=exported.path.parent, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("XParts-v0 [True, True, True]\n", "")


@pytest.mark.parametrize(
    ("low", "high", "dtype"),
    [
        (5_000, 6_000, np.float32),
        (-6_000, -5_000, np.float32),
        (-np.inf, -5_000, np.float32),
        (5_000, np.inf, np.float32),
        (-np.inf, np.inf, np.float32),
        (-3.4e38, 3.4e38, np.float32),
        (0, 255, np.uint8),
        (-(2**40), 2**40, np.int64),
    ],
)
def test_what_a_policy_is_proved_on_is_of_its_space_and_not_huge(low, high, dtype):
    space = gym.spaces.Box(low, high, (3,), dtype, seed=0)
    rows = draw_observations(space, gym.spaces.Discrete(2), 200)
    assert rows.dtype == dtype and np.isfinite(rows).all()
    assert all(space.contains(row) for row in rows)
    assert np.abs(rows.astype(np.float64)).max() <= 7_000
    assert len(np.unique(rows)) > 50
