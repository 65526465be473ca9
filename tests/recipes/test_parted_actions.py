"""Actions of several parts, from the environment through training to a policy and its file."""

import gymnasium as gym
import numpy as np
import pytest
from parted_env import LENGTH, SPACES

import muster
from muster.cli.main import main
from muster.envs import EnvError, check_env, make_envs
from muster.envs.flat_actions import flat_space, own_action

SMALL = {"eval_every": 0, "eval_episodes": 2, "quiet": True, "stop_at": None, "workers": 0,
         "hidden": (8,), "env_steps": 256}  # fmt: skip
PPO = {"num_envs": 4, "rollout": 32, "slots": 4, "minibatches": 1, "epochs": 1}
SAC = {"learning_starts": 100, "batch_size": 16}


def train(run, algo, env, **options):
    return muster.train(algo, f"parted_env:{env}", run_dir=str(run), **{**SMALL, **options})


@pytest.mark.parametrize("kind", SPACES)
def test_flat_actions_are_those_of_the_environment(kind):
    own = SPACES[kind]
    flat = flat_space(own)
    flat.seed(0)
    for _ in range(20):
        drawn = flat.sample()
        action = own_action(own, drawn)
        assert own.contains(action)
        if isinstance(flat, gym.spaces.Box):
            assert np.allclose(gym.spaces.flatten(own, action), drawn)
    with make_envs(f"parted_env:{kind}Parted-v0", 2) as envs:
        envs.reset()
        space = envs.single_action_space
        envs.step(np.stack([space.sample(), space.sample()]))
        assert space == flat
    assert check_env(f"parted_env:{kind}Parted-v0").ok


@pytest.mark.parametrize("space", [gym.spaces.Discrete(2), gym.spaces.MultiDiscrete([2, 3])])
def test_one_part_stays_as_it_is(space):
    assert flat_space(space) is None


def test_other_parts_are_refused_in_three_lines(capsys):
    mixed = gym.spaces.Tuple([gym.spaces.Discrete(2), gym.spaces.Box(-1, 1, (1,))])
    for space in (mixed, gym.spaces.Tuple([gym.spaces.Text(3)]), gym.spaces.Dict({})):
        with pytest.raises(EnvError, match=r"actions in .* are not supported"):
            flat_space(space)
    assert main(["train", "ppo", "parted_env:MixedParted-v0"]) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 3 and "all discrete, or all Boxes" in said[1]
    assert main(["train", "dqn", "parted_env:BinaryParted-v0"]) == 2
    assert "got MultiDiscrete([2 2 2]) for MultiBinary(3)" in capsys.readouterr().err


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("algo", "env", "options"),
    [
        *(("ppo", f"{kind}Parted-v0", PPO) for kind in SPACES),
        ("a2c", "BinaryParted-v0", {}),
        ("impala", "NamedParted-v0", {"env_steps": 1_000}),
        ("appo", "PairParted-v0", {"env_steps": 1_000}),
        ("a3c", "BinaryParted-v0", {}),
        ("sac", "ArmsParted-v0", SAC),
        ("sac", "LimbsParted-v0", SAC),
        pytest.param("ppo", "NamedParted-v0", {**PPO, "workers": 2}, marks=pytest.mark.slow),
    ],
)
def test_every_algorithm_with_such_actions_trains_and_its_policy_gives_them(
    tmp_path, algo, env, options
):
    result = train(tmp_path / "run", algo, env, **options)
    own = SPACES[env.partition("Parted")[0]]
    for policy in (result.policy, muster.load_policy(tmp_path / "run", env=f"parted_env:{env}")):
        for deterministic in (True, False):
            action = policy.act(np.zeros(2, np.float32), deterministic=deterministic)
            assert own.contains(action)
        batch = policy.act(np.zeros((3, 2), np.float32))
        assert len(batch) == 3 and own.contains(policy.to_env(batch[1]))


def test_a_run_is_resumed_evaluated_and_exported(tmp_path, capsys):
    env = "parted_env:NamedParted-v0"
    whole = train(tmp_path / "whole", "ppo", "NamedParted-v0", **{**PPO, "env_steps": 512})
    train(tmp_path / "run", "ppo", "NamedParted-v0", **PPO)
    resumed = muster.resume(tmp_path / "run", env_steps=512)
    assert resumed.policy_sha256 == whole.policy_sha256
    assert main(["eval", str(tmp_path / "run"), "--env", env, "--episodes", "2"]) == 0
    pytest.importorskip("onnxruntime")
    exported = muster.export(tmp_path / "run", env=env, episodes=2)
    assert exported.path.exists()


def test_switches_have_masks_like_other_actions(tmp_path):
    result = train(tmp_path / "run", "ppo", "Locked-v0", **PPO)
    seen = {"obs": np.zeros(2, np.float32), "action_mask": np.array([0, 1, 1, 0, 1, 0], np.int8)}
    assert result.policy.act(seen).tolist() == [1, 0, 0]
    assert result.eval_return_mean >= LENGTH  # the environment checks every action
