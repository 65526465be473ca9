"""I1 to I3 from Python and from files: slips of names, odd numbers, contradictions."""

import math
import os

import pytest
from bad_input import CASES, KEYS, LEGAL, NUMBERS, SLIPS, is_legal

from muster.errors import OptionError
from muster.recipes.settings import read_file, resolve
from muster.recipes.train import train


@pytest.fixture(autouse=True)
def nothing_is_written(tmp_path, monkeypatch):
    place = tmp_path / "here"
    place.mkdir()
    monkeypatch.chdir(place)
    yield
    assert os.listdir(place) == []


def refused(call, *arguments):
    with pytest.raises(OptionError) as caught:
        call(*arguments)
    lines = str(caught.value).splitlines()
    assert [line[:6] for line in lines[1:]] == ["  why:", "  try:"], lines
    return str(caught.value)


def test_every_key_is_covered():
    assert {key for _, key in SLIPS} == set(KEYS) and len(KEYS) >= 38
    assert set(LEGAL) == set(NUMBERS), "say of each number whether it may be 0, -1, 1e30"


@pytest.mark.parametrize("key", KEYS)
def test_each_slip_of_a_key_is_answered_with_the_key(key, tmp_path):
    file = tmp_path / "config.yaml"
    for slip in [slip for slip, right in SLIPS if right == key]:
        message = refused(resolve, "dqn", "CartPole-v1", {slip: 1})
        assert f"there is no option {slip!r}" in message and f"nearest is {key!r}" in message
        file.write_text(f"{slip}: 1\n")
        message = refused(read_file, file, "dqn", "CartPole-v1")
        assert f"there is no option {slip!r}" in message and f"nearest is {key!r}" in message


@pytest.mark.parametrize(("name", "text"), CASES)
def test_an_odd_number_is_legal_or_refused(name, text, tmp_path):
    """From Python as a number if it is one, and from a file."""
    value = text
    for kind in (float, int):
        try:
            value = kind(text)
        except ValueError:
            continue
    given = (value,) if name == "hidden" else value
    file = tmp_path / "config.yaml"
    shown = {"nan": ".nan", "inf": ".inf", "-inf": "-.inf", "": "''"}.get(text, text)
    file.write_text(f"{name}: {[shown] if name == 'hidden' else shown}\n".replace("'", ""))
    if text == "":
        file.write_text(f'{name}: ""\n')
    if is_legal(name, text):
        assert resolve("dqn", "CartPole-v1", {name: given})
        assert resolve("dqn", "CartPole-v1", {}, file)
    else:
        assert name in refused(resolve, "dqn", "CartPole-v1", {name: given})
        assert name in refused(resolve, "dqn", "CartPole-v1", {}, file)


@pytest.mark.parametrize("key", sorted(set(KEYS)))
@pytest.mark.parametrize("value", [object(), b"x", [], {}, "", -1, True, math.nan])
def test_a_value_of_any_other_type_never_gives_another_error(key, value):
    try:
        resolve("dqn", "CartPole-v1", {key: value})
    except OptionError as error:
        assert len(str(error).splitlines()) == 3


CONTRADICTIONS = [
    {"batch_size": 65, "buffer_size": 64},
    {"n_step": 64, "buffer_size": 64},
    {"learning_starts": 2_000, "buffer_size": 1_000},
    {"num_envs": 200, "buffer_size": 100},
    {"num_envs": 60, "buffer_size": 100, "batch_size": 64, "learning_starts": 0},
    {"num_envs": 60, "buffer_size": 100, "batch_size": 1, "learning_starts": 99},
    {"dueling": True, "hidden": ()},
    {"dueling": True, "model": "mlp"},
    {"resume": True},
    {"resume": True, "run_dir": "x", "from_checkpoint": "y"},
    {"device": "cdua"},
    {"device": "cpu:1"},
    {"device": 1},
    {"model": "no_such_model"},
]


@pytest.mark.parametrize("options", CONTRADICTIONS)
def test_contradictions_are_refused(options):
    refused(resolve, "dqn", "CartPole-v1", options)


@pytest.mark.parametrize(
    "options",
    [
        {"buffer_size": 9 * 10**9},
        {"hidden": (65_536, 65_536, 65_536, 65_536)},
        {"updates_per_train": 10**15},
        {"train_every": 10**15},
    ],
)
def test_what_does_not_fit_into_memory_is_refused_with_its_size(options):
    def start():
        train("dqn", "CartPole-v1", quiet=True, **options)

    assert "GiB" in refused(start) and "does not fit into memory" in refused(start)


def test_what_is_legal_also_trains(tmp_path):
    """All numbers at the odd values that they may have, in three runs."""
    small = {"env_steps": 64, "num_envs": 2, "train_every": 32, "updates_per_train": 2}
    small |= {"learning_starts": 16, "batch_size": 8, "eval_episodes": 1, "quiet": True}
    for number, odd in enumerate((0, -1, 1e30)):
        options = {name: odd for name, legal in LEGAL.items() if odd in legal}
        if odd == 0:
            del options["stop_at"]  # any return of CartPole is more, so it would stop at once
        run_dir = str(tmp_path / str(number))
        result = train("dqn", "CartPole-v1", run_dir=run_dir, **{**small, **options})
        assert result.env_steps == 64


@pytest.mark.parametrize(("algo", "env"), [("ppo", object), ("ppo", 3), (object, "CartPole-v1")])
def test_what_is_no_name_is_refused(algo, env):
    assert "is not possible" in refused(train, algo, env)
