"""Files of recorded episodes: muster's own and Minari's, whole and damaged."""

import io
import json
import shutil

import gymnasium as gym
import h5py
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete
from PIL import Image
from recorded import about, random_episodes, write_episodes, write_minari

import muster
from muster.cli.main import main
from muster.data import episodes as files
from muster.data.episodes import EpisodeWriter, RecordedEpisode, read_episodes
from muster.envs.space_json import space_from_json, space_to_json
from muster.fitting import load_data
from muster.fitting.errors import DataError

OBS = Box(-1, 1, (3,), np.float32)
SPACES = [
    (OBS, Discrete(3)),
    (Box(-np.inf, np.inf, (2,), np.float64), Box(-2, 2, (2,), np.float32)),
    (Box(0, 255, (6, 5, 1), np.uint8), MultiDiscrete([2, 3])),
    (Dict({"a": OBS, "b": Discrete(4), "action_mask": MultiBinary(3)}), Discrete(3)),
]


def rows(x):
    return (
        np.concatenate([part.reshape(len(part), -1) for part in x.values()], 1)
        if isinstance(x, dict)
        else x.reshape(len(x), -1)
    )


# ---- spaces


@pytest.mark.parametrize(
    "space",
    [each for pair in SPACES for each in pair]
    + [
        Discrete(3, start=-1),
        MultiDiscrete([[2, 3]]),
        MultiBinary((2, 2)),
        Box(0, np.float32([1, 2]), (2,)),
    ],
    ids=str,
)
def test_a_space_is_the_same_after_a_file(space):
    text = json.dumps(space_to_json(space))
    assert space_from_json(json.loads(text)) == space and len(text) < 400


@pytest.mark.parametrize(
    "written",
    [
        None,
        [],
        {},
        {"type": "Text"},
        {"type": "Box"},
        {"type": "Discrete", "n": 0},
        {"type": "Discrete", "n": "x"},
        {"type": "Box", "dtype": "float32", "shape": [1 << 40], "low": 0, "high": 1},
        {"type": "Box", "dtype": "O", "shape": [1], "low": 0, "high": 1},
        {"type": "Box", "dtype": "float32", "shape": [2], "low": [0, 0, 0], "high": 1},
        {"type": "MultiBinary", "n": [-1]},
        {"type": "Dict", "subspaces": {"a": 3}},
    ],
)
def test_what_describes_no_space_is_refused(written):
    with pytest.raises(ValueError):
        space_from_json(written)


# ---- muster's own files


@pytest.mark.parametrize(("obs_space", "action_space"), SPACES, ids=str)
def test_episodes_are_the_same_after_files_of_several_shards(
    tmp_path, monkeypatch, obs_space, action_space
):
    monkeypatch.setattr(files, "_SHARD_BYTES", 300)
    made = random_episodes(obs_space, action_space)
    path = write_episodes(tmp_path / "played", obs_space, action_space, made, env="Some-v0")
    assert len(list(path.glob("step-*"))) > 1
    meta, found = read_episodes(path)
    assert meta["env"] == "Some-v0" and len(found) == len(made)
    for one, (obs, action) in zip(found, made, strict=True):
        np.testing.assert_array_equal(rows(one.obs), rows(obs))
        np.testing.assert_array_equal(one.action, action)


@pytest.mark.parametrize("kind", ["own", "minari"])
@pytest.mark.parametrize(("obs_space", "action_space"), SPACES, ids=str)
def test_whole_episodes_are_for_training_or_for_testing(tmp_path, obs_space, action_space, kind):
    made = random_episodes(obs_space, action_space)
    write = write_episodes if kind == "own" else write_minari
    data = load_data(write(tmp_path / "played", obs_space, action_space, made), split=0.3)
    assert data.episodes == (4, 2)
    known = [rows(obs)[:-1].astype(np.float32) for obs, _ in made]
    tested = rows(data.x_test).astype(np.float32)
    pairs = [
        (one, other)
        for one in range(6)
        for other in range(6)
        if one != other
        and len(known[one]) + len(known[other]) == len(tested)
        and (np.concatenate([known[one], known[other]]) == tested).all()
    ]
    assert len(pairs) == 1, "two episodes, with all their steps, and nothing else"
    actions = np.concatenate([np.asarray(made[each][1]) for each in pairs[0]])
    labels = data.y_test.reshape(actions.shape)
    np.testing.assert_array_equal(labels, actions.astype(labels.dtype))
    assert load_data(tmp_path / "played", split=0.3).sha256 == data.sha256
    assert load_data(tmp_path / "played", split=0.3, seed=1).sha256 != data.sha256


def damage(path, how):
    shard = sorted(path.glob("step-*"), key=lambda each: int(each.name[5:]))[-1]
    if how == "changed":
        file = shard / "episodes.safetensors"
        content = bytearray(file.read_bytes())
        content[-1] ^= 1
        file.write_bytes(content)
    elif how == "cut":
        file = shard / "episodes.safetensors"
        file.write_bytes(file.read_bytes()[:-9])
    elif how == "missing":
        (shard / "episodes.safetensors").unlink()
    elif how == "first shard missing":
        shutil.rmtree(min(path.glob("step-*"), key=lambda each: int(each.name[5:])))


@pytest.mark.parametrize("how", ["changed", "cut", "missing", "first shard missing"])
def test_damaged_episodes_are_named(tmp_path, monkeypatch, capsys, how):
    monkeypatch.setattr(files, "_SHARD_BYTES", 300)
    made = random_episodes(OBS, Discrete(3))
    path = write_episodes(tmp_path / "played", OBS, Discrete(3), made)
    damage(path, how)
    assert main(["fit", "mlp", "--data", str(path), "--run-dir", str(tmp_path / "run")]) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 3 and "cannot be read" in said[0] and "--save-episodes" in said[2]
    assert not (tmp_path / "run").exists()


def test_a_writer_that_was_killed_leaves_whole_episodes(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_SHARD_BYTES", 300)
    writer = EpisodeWriter(tmp_path / "played", about(None, OBS, Discrete(3)))
    for obs, action in random_episodes(OBS, Discrete(3)):
        writer.add(RecordedEpisode(obs, action, np.zeros(len(action), np.float32), False))
    _, found = read_episodes(tmp_path / "played")  # never closed
    assert 2 <= len(found) <= writer.episodes


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda obs, action: obs.__setitem__(2, np.nan), "episode 1 .* of step 2 is nan"),
        (lambda obs, action: action.__setitem__(3, 7), "the action of step 3, 7, is not in"),
        (lambda obs, action: action.__setitem__(3, -1), "the action of step 3, -1"),
    ],
)
def test_a_step_that_does_not_fit_is_named(tmp_path, change, message):
    made = random_episodes(OBS, Discrete(3))
    change(*made[1])
    path = write_episodes(tmp_path / "played", OBS, Discrete(3), made)
    with pytest.raises(DataError, match=message):
        load_data(path)


def test_an_action_that_its_mask_forbids_is_named(tmp_path):
    space = Dict({"a": OBS, "action_mask": MultiBinary(3)})
    made = random_episodes(space, Discrete(3))
    obs, action = made[2]
    obs["action_mask"][4] = 1
    obs["action_mask"][4, action[4]] = 0
    path = write_episodes(tmp_path / "played", space, Discrete(3), made)
    with pytest.raises(DataError, match=r"episode 2 .* step 4, \[\d\], is illegal by its mask"):
        load_data(path)


def test_one_episode_is_too_few(tmp_path):
    made = random_episodes(OBS, Discrete(3), count=1)
    path = write_episodes(tmp_path / "played", OBS, Discrete(3), made)
    with pytest.raises(DataError, match="has 1 episode\n"):
        load_data(path)


# ---- Minari's files


def test_discrete_actions_of_minari_may_start_anywhere(tmp_path):
    space = Discrete(3, start=5)
    made = random_episodes(OBS, space)
    data = load_data(write_minari(tmp_path / "played", OBS, space, made))
    assert set(np.unique(data.y_train)) <= {0, 1, 2} and data.action_space == Discrete(3)
    assert data.env == "CartPole-v1"


def test_a_data_set_of_minari_is_cloned(tmp_path):
    made = random_episodes(OBS, Discrete(3))
    path = write_minari(tmp_path / "played" / "expert-v0", OBS, Discrete(3), made, env_spec="{}")
    done = muster.fit("mlp", path, epochs=1, batch_size=8, run_dir=tmp_path / "run", quiet=True)
    assert done.data == "expert-v0" and done.test_accuracy is not None
    inside = load_data(path / "data")  # the folder of the files is as good
    assert inside.sha256 == load_data(path).sha256


@pytest.mark.parametrize("lengths", ["one", "several"])
def test_pictures_of_minari_are_read_as_it_stores_them(tmp_path, lengths):
    space = Box(0, 255, (32, 40, 3), np.uint8)
    made = random_episodes(space, Discrete(3), count=2, steps=3)
    for obs, _ in made:  # smooth pictures, of which JPEG keeps nearly all
        obs[:] = np.arange(40, dtype=np.uint8)[:, None] * np.uint8(5)
        if lengths == "several":
            obs[1:] //= 2
    path = write_minari(tmp_path / "played", space, Discrete(3), made)
    with h5py.File(path / "data" / "main_data.hdf5", "a") as opened:
        for number, (obs, _) in enumerate(made):
            del opened[f"episode_{number}/observations"]
            files = [as_jpeg(each) for each in obs]
            kind = h5py.vlen_dtype(np.uint8) if lengths == "several" else None
            opened.create_dataset(f"episode_{number}/observations", data=files, dtype=kind)
    data = load_data(path)
    assert data.x_train.shape[1:] == (32, 40, 3) and data.x_train.dtype == np.uint8
    wanted = [obs[:-1] for obs, action in made if len(action) == len(data.y_train)]
    assert any(np.abs(data.x_train.astype(int) - each).max() < 12 for each in wanted)
    with h5py.File(path / "data" / "main_data.hdf5", "a") as opened:
        damaged = opened["episode_1/observations"][1]
        opened["episode_1/observations"][1] = damaged // 2
    with pytest.raises(DataError, match="picture 1 of episode_1/observations is damaged"):
        load_data(path)


def as_jpeg(picture):
    file = io.BytesIO()
    Image.fromarray(picture).save(file, format="JPEG")
    return np.frombuffer(file.getvalue(), np.uint8)


def ruin(path, how):
    file, metadata = path / "data" / "main_data.hdf5", path / "data" / "metadata.json"
    if how == "cut":
        file.write_bytes(file.read_bytes()[:1000])
    elif how == "no file":
        file.unlink()
    elif how == "no metadata":
        metadata.write_text("{}")
    elif how == "an episode less":
        with h5py.File(file, "a") as opened:
            del opened["episode_3"]
    elif how == "a link":
        with h5py.File(file, "a") as opened:
            del opened["episode_3/actions"]
            opened["episode_3/actions"] = h5py.ExternalLink("/etc/passwd", "/x")
    elif how == "texts":
        with h5py.File(file, "a") as opened:
            del opened["episode_3/actions"]
            opened["episode_3/actions"] = ["left"] * 9
    elif how == "too few":
        with h5py.File(file, "a") as opened:
            del opened["episode_3/observations"]
            opened["episode_3/observations"] = np.zeros((2, 3), np.float32)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("cut", "cannot be read"),
        ("no file", "has no main_data.hdf5"),
        ("no metadata", "does not describe its observation_space"),
        ("an episode less", "has 5 episodes, and its metadata say 6"),
        ("a link", "actions is a link"),
        ("texts", "no rows of numbers"),
        ("too few", "episode_3/observations has 2 rows for 9 actions"),
    ],
)
def test_a_damaged_data_set_of_minari_is_named(tmp_path, how, message):
    made = random_episodes(OBS, Discrete(3))
    path = write_minari(tmp_path / "played", OBS, Discrete(3), made)
    ruin(path, how)
    with pytest.raises(DataError, match=message) as caught:
        load_data(path)
    assert len(str(caught.value).splitlines()) == 3


def test_without_h5py_the_error_has_the_line_that_installs_it(tmp_path, monkeypatch):
    path = write_minari(tmp_path / "played", OBS, Discrete(3), random_episodes(OBS, Discrete(3)))
    monkeypatch.setitem(__import__("sys").modules, "h5py", None)
    with pytest.raises(DataError, match=r"\[fit\]"):
        load_data(path)


def test_spaces_that_no_network_reads_are_refused(tmp_path):
    tuples = gym.spaces.Tuple([OBS])
    path = write_minari(tmp_path / "played", OBS, Discrete(3), random_episodes(OBS, Discrete(3)))
    written = json.loads((path / "data" / "metadata.json").read_text())
    written["observation_space"] = json.dumps({"type": "Tuple", "subspaces": []})
    (path / "data" / "metadata.json").write_text(json.dumps(written))
    with pytest.raises(DataError, match="no space of type 'Tuple'"):
        load_data(path)
    with pytest.raises(muster.MusterError, match="cannot be written to a file"):
        space_to_json(tuples)
