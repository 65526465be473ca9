"""Golden policies: what the code trains today, to the last bit; a change of shape changes none.

`python tests/recipes/test_goldens.py` writes those of this kind of machine to `goldens.json` anew,
where a change is the point. The bits belong to one kind of CPU and to the pinned libraries: on a
kind that is not in the file nothing is compared.
"""

import importlib.metadata
import json
import sys
from pathlib import Path

import pytest
import torch

import muster

FILE = Path(__file__).parent / "goldens.json"
COMMON = {
    "seed": 11,
    "eval_every": 0,
    "eval_episodes": 1,
    "stop_at": None,
    "checkpoint_every": 0,
    "quiet": True,
}
PPO = {"env_steps": 2_048, "num_envs": 8, "rollout": 64} | COMMON
DQN = {"env_steps": 1_536, "learning_starts": 256, "hidden": (64, 64)} | COMMON
RUNS = {
    "ppo CartPole": ("ppo", "CartPole-v1", PPO),
    "ppo Pendulum": ("ppo", "Pendulum-v1", PPO),
    "ppo image": ("ppo", "golden_env:Halves-v0", PPO | {"env_steps": 512, "rollout": 16}),
    "ppo lstm": ("ppo", "CartPole-v1", PPO | {"model": "lstm"}),
    "ppo wide": ("ppo", "CartPole-v1", PPO | {"hidden": (300, 300), "env_steps": 1_024}),
    "dqn": ("dqn", "CartPole-v1", DQN | {"workers": 0}),
    "dqn all": (
        "dqn",
        "CartPole-v1",
        DQN | {"workers": 0, "double": True, "dueling": True, "prioritized": True, "n_step": 3},
    ),
    "dqn image": (
        "dqn",
        "golden_env:Halves-v0",
        DQN | {"workers": 0, "env_steps": 384, "learning_starts": 128},
    ),
}
PPO_RUNS = [name for name in RUNS if name.startswith("ppo")]
DQN_RUNS = [name for name in RUNS if name.startswith("dqn")]


def kind_of_machine():
    """Return all that the bits of a policy may depend on, besides our own code."""
    versions = {name: importlib.metadata.version(name) for name in ("torch", "numpy", "numba")}
    return versions | {"cpu": torch.backends.cpu.get_cpu_capability()}


def sha_of(name, run_dir, **more):
    algo, env, options = RUNS[name]
    return muster.train(algo, env, run_dir=str(run_dir), **options, **more).policy_sha256


@pytest.fixture(scope="module")
def goldens():
    known = json.loads(FILE.read_text())
    for each in known:
        if each["machine"] == kind_of_machine():
            return each["policies"]
    machines = [each["machine"] for each in known]
    pytest.skip(f"goldens are of {machines}, this is {kind_of_machine()}")


@pytest.fixture(autouse=True)
def found_by_nodes(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("name", PPO_RUNS)
def test_ppo_trains_the_golden_policy(goldens, tmp_path, name, workers):
    assert sha_of(name, tmp_path / "run", workers=workers) == goldens[name]


@pytest.mark.parametrize("name", DQN_RUNS)
def test_dqn_trains_the_golden_policy(goldens, tmp_path, name):
    assert sha_of(name, tmp_path / "run") == goldens[name]


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "engine"), [(4, "local"), (2, "ray"), (4, "ray")])
@pytest.mark.parametrize("name", PPO_RUNS)
def test_ppo_trains_the_golden_policy_on_every_engine(goldens, tmp_path, name, workers, engine):
    assert sha_of(name, tmp_path / "run", workers=workers, engine=engine) == goldens[name]


if __name__ == "__main__":
    import tempfile

    sys.path.insert(0, str(Path(__file__).parent))
    policies = {}
    for run_name in RUNS:
        with tempfile.TemporaryDirectory() as folder:
            serial = {"workers": 0} if run_name in PPO_RUNS else {}
            policies[run_name] = sha_of(run_name, Path(folder, "run"), **serial)
        print(run_name, policies[run_name])
    here = {"machine": kind_of_machine(), "policies": policies}
    others = [x for x in json.loads(FILE.read_text()) if x["machine"] != here["machine"]]
    known = sorted([*others, here], key=lambda each: each["machine"]["cpu"])
    FILE.write_text(json.dumps(known, indent=1) + "\n")
