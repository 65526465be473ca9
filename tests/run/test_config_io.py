"""Configurations as YAML: what goes in comes out, and every mistake is named."""

import dataclasses
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.errors import OptionError
from muster.run import from_yaml, to_yaml
from muster.run.yaml_text import MAX_TEXT


@dataclass(frozen=True)
class Replay:
    capacity: int = 10_000
    prioritized: bool = False


@dataclass(frozen=True)
class Algo:
    lr: float = 1e-3
    hidden: tuple[int, ...] = (64, 64)
    replay: Replay = field(default_factory=Replay)

    def __post_init__(self):
        if self.lr <= 0:
            raise OptionError(f"lr={self.lr}", "it has to be above 0", "lr: 0.001")
        if self.lr > 100:
            raise ValueError("that is a lot")


@dataclass(frozen=True)
class Config:
    env_id: str = "CartPole-v1"
    engine: Literal["local", "ray"] = "local"
    seconds: float | None = None
    run_dir: Path | None = None
    algo: Algo = field(default_factory=Algo)
    maybe: Replay | None = None
    many: tuple[Replay, ...] = ()
    named: dict[str, float] = field(default_factory=dict)
    parts: dict[str, Replay] = field(default_factory=dict)


FULL = Config(
    "no", "ray", 1.5, Path("a b/c"), Algo(3e-05, (1,), Replay(3, True)), Replay(1), (Replay(2),),
    {"x": -0.5}, {"y": Replay(7)},
)  # fmt: skip


@pytest.mark.parametrize("config", [Config(), FULL], ids=["defaults", "full"])
def test_a_configuration_comes_back(config):
    text = to_yaml(config)
    assert from_yaml(text, Config) == config
    assert list(yaml.safe_load(text)) == [each.name for each in dataclasses.fields(Config)]


def test_absent_keys_get_their_defaults():
    assert from_yaml("", Config) == Config()
    assert from_yaml("# nothing\n", Config) == Config()
    assert from_yaml("algo: {lr: 3e-4}", Config) == Config(algo=Algo(lr=3e-4))


TRICKY = """
    no yes on null ~ 1e5 1_000 0x1f 0o17 017 1:30 2026-01-01 .inf nan .nan true - = << !x &a *a
"""
words = st.text() | st.sampled_from(
    [*TRICKY.split(), "# x", "a: b", "", " a ", "\n", "\0", "é", "\x85", "\u2028"]
)


@dataclass(frozen=True)
class Values:
    s: str
    i: int
    f: float
    b: bool
    n: float | None
    m: dict[str, str]


@settings(max_examples=150, deadline=None)
@given(
    config=st.builds(
        Values, s=words, i=st.integers(), f=st.floats(allow_nan=False), b=st.booleans(),
        n=st.none() | st.floats(allow_nan=False), m=st.dictionaries(words, words, max_size=4),
    )
)  # fmt: skip
def test_any_value_comes_back_here_and_in_another_reader(config):
    text = to_yaml(config)
    found = from_yaml(text, Values)
    assert found == config
    assert math.copysign(1, found.f) == math.copysign(1, config.f)
    other = yaml.safe_load(text)
    assert other["s"] == config.s
    assert other["m"] == config.m
    assert other["i"] == config.i


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3e-4", 3e-4), ("1E5", 1e5), (".5", 0.5), ("5.", 5.0), ("-1.5e+3", -1500.0), ("7", 7.0),
        (".inf", math.inf), ("-.INF", -math.inf), ("1_000.5", 1000.5),
    ],
)  # fmt: skip
def test_numbers_are_written_as_people_write_them(text, value):
    assert from_yaml(f"seconds: {text}", Config).seconds == value


@pytest.mark.parametrize(
    ("text", "value"), [("100_000", 100_000), ("0x10", 16), ("0o17", 15), ("010", 10), ("+5", 5)]
)
def test_whole_numbers(text, value):
    assert from_yaml(f"capacity: {text}", Replay).capacity == value


@pytest.mark.parametrize("word", ["no", "yes", "on", "off", "y", "1:30", "2026-01-01", "<<"])
def test_words_stay_words(word):
    assert from_yaml(f"env_id: {word}", Config).env_id == word


def keys(cls, path=""):
    for each in dataclasses.fields(cls):
        yield path, each.name
        if dataclasses.is_dataclass(each.type):
            yield from keys(each.type, f"{path}{each.name}.")


@pytest.mark.parametrize(("path", "name"), list(keys(Config)), ids=lambda word: word)
def test_every_misspelt_key_is_refused_with_the_nearest(path, name):
    wrong = name[:1] + "_" + name[1:]
    text = f"{wrong}: 1"
    for outer in reversed(path.split(".")[:-1]):
        text = f"{outer}: {{{text}}}"
    with pytest.raises(OptionError, match=f"unknown key '{path}{wrong}'") as caught:
        from_yaml(text, Config)
    assert f"did you mean {name!r}?" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("maybe: {capacitty: 1}", "maybe.capacitty"),
        ("many: [{}, {capacitty: 1}]", "many[1].capacitty"),
        ("parts: {x: {capacitty: 1}}", "parts.x.capacitty"),
    ],
)
def test_a_misspelt_key_is_found_at_any_depth(text, key):
    with pytest.raises(OptionError) as caught:
        from_yaml(text, Config)
    assert f"unknown key {key!r}" in str(caught.value)


def test_a_key_like_no_other_lists_those_there_are():
    with pytest.raises(OptionError, match="the keys are capacity, prioritized"):
        from_yaml("zzz: 1", Replay)


@pytest.mark.parametrize(
    ("text", "key", "said"),
    [
        ("algo: {lr: fast}", "algo.lr", "Expected `float`, got `str`"),
        ("algo: {lr: true}", "algo.lr", "got `bool`"),
        ("algo: {lr: [1]}", "algo.lr", "got `array`"),
        ("algo: {lr: null}", "algo.lr", "got `null`"),
        ("algo: {hidden: [1, x]}", "algo.hidden[1]", "Expected `int`, got `str`"),
        ("algo: {hidden: 64}", "algo.hidden", "Expected `array`"),
        ("algo: {replay: {capacity: 1.5}}", "algo.replay.capacity", "Expected `int`, got `float`"),
        ("algo: {replay: {capacity: '1'}}", "algo.replay.capacity", "got `str`"),
        ("algo: {replay: {prioritized: 1}}", "algo.replay.prioritized", "Expected `bool`"),
        ("algo: 3", "algo", "Expected `object`"),
        ("engine: spark", "engine", "Invalid enum value 'spark'"),
        ("env_id: 3", "env_id", "Expected `str`, got `int`"),
        ("run_dir: 3", "run_dir", "Expected `Path"),
        ("named: {x: y}", "named", "Expected `float`"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_with_its_key(text, key, said):
    with pytest.raises(OptionError) as caught:
        from_yaml(text, Config)
    message = str(caught.value)
    assert f"wrong '{key}" in message
    assert said in message


def test_the_line_to_try_is_the_default():
    with pytest.raises(OptionError, match=r"try: capacity: 10000"):
        from_yaml("algo: {replay: {capacity: x}}", Config)


def test_what_the_class_says_of_a_value_is_what_is_said():
    with pytest.raises(OptionError) as caught:
        from_yaml("algo: {lr: -1.0}", Config)
    assert caught.value.args == ("lr=-1.0", "it has to be above 0", "lr: 0.001")
    with pytest.raises(OptionError, match="that is a lot"):
        from_yaml("algo: {lr: 101.0}", Config)


def test_a_missing_key_without_a_default_is_named():
    with pytest.raises(OptionError, match="`s`"):
        from_yaml("i: 1", Values)


BOMB = "a: &a [x, x]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(12)
)


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("env_id: !!python/object/apply:os.system ['touch canary']", "the tag"),
        ("env_id: !!python/name:os.system", "the tag"),
        ("!!python/object:x {}", "the tag"),
        ("env_id: !custom x", "the tag"),
        ("env_id: !!str x", "the tag"),
        ("env_id: !!binary aGk=", "the tag"),
        (BOMB, "an anchor or alias"),
        ("env_id: &a x", "an anchor or alias"),
        ("<<: {env_id: x}", "unknown key '<<'"),
        ("env_id: a\nenv_id: b", "'env_id' for the second time"),
        ("algo:\n  lr: 1\n  lr: 2", "line 3"),
        ("1: 2", "the key 1 is not a word"),
        ("? [a]\n: b", "is not a word"),
        ("null: 1", "is not a word"),
        ("[a, b]", "a mapping"),
        ("just words", "a mapping"),
        ("a: b: c", "not valid YAML"),
        ("a: [", "not valid YAML"),
        ("a: \0", "not valid YAML"),
        ("a: 1\n---\na: 2", "not valid YAML"),
        ("env_id: " + "9" * 5000, "not valid YAML"),
        ("a: " + "[" * 5000, "more than 32 levels"),
        ("a: " + "{b: " * 40 + "}" * 40, "more than 32 levels"),
        ("a: " + "x" * MAX_TEXT, "the limit is"),
        ("\n".join(f"k{i}: 1" for i in range(5_000)), "unknown key 'k0'"),
    ],
    ids=lambda value: ascii(value)[:30],
)
def test_what_a_configuration_does_not_need_is_refused(tmp_path, monkeypatch, text, said):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OptionError) as caught:
        from_yaml(text, Config)
    assert said in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "config",
    [{"a": object()}, {"a": {1j}}, [1], 3, {"a": open}],
    ids=["object", "complex", "list", "number", "function"],
)
def test_what_is_no_configuration_is_not_written(config):
    with pytest.raises(OptionError):
        to_yaml(config)
