"""Stacked frames are stored once, and read as if each stack had been stored whole."""

import numpy as np
import pytest
from gymnasium import spaces
from histories import digest_of

from muster.data import ReplayBuffer, Sequence, StepBlock, obs_columns, store
from muster.data.obs_columns import ObsRows, StackedFrames, storage_of
from muster.data.schema import column_of
from muster.data.steps import FragmentSource
from muster.errors import OptionError

DEPTH, FRAME, ENVS = 4, (3, 5), 2
STACK = spaces.Box(0, 255, (DEPTH, *FRAME), np.uint8)
ACTION = spaces.Discrete(3)


class Camera:
    """Environments that show their last frames; a reset fills them with the first one."""

    def __init__(self, seed, envs=ENVS, is_stack=True, odds=0.1):
        self.rng = np.random.default_rng(seed)
        self.envs, self.is_stack, self.odds = envs, is_stack, odds
        self.seen = self.first()

    def frames(self, *lead):
        return self.rng.integers(0, 3, (*lead, *FRAME), np.uint8)  # some are equal by chance

    def first(self):
        return np.repeat(self.frames(self.envs, 1), DEPTH, axis=1)

    def block(self, steps):
        """Return some steps of all environments."""
        seen, finals = [self.seen], []
        terminated = self.rng.random((steps, self.envs)) < self.odds
        for t in range(steps):
            then = np.concatenate([self.seen[:, 1:], self.frames(self.envs, 1)], axis=1)
            if not self.is_stack:
                then = self.frames(self.envs, DEPTH)
            ended = terminated[t]
            finals.append(then[ended])
            self.seen = np.where(ended[:, None, None, None], self.first(), then)
            seen.append(self.seen)
        reward = self.rng.random((steps, self.envs)).astype(np.float32)
        action = self.rng.integers(0, 3, (steps, self.envs))
        cut = np.zeros_like(terminated)
        return StepBlock(
            np.stack(seen), action, reward, terminated, cut, np.concatenate(finals), {}
        )


def whole(monkeypatch):
    """Have observations stored as they come."""
    monkeypatch.setattr(store, "storage_of", ObsRows)


def made(capacity, **options):
    return ReplayBuffer(capacity, STACK, ACTION, ENVS, seed=7, **options)


def played(capacity, seed=0, rounds=40, sources=1, resumed_by=None, is_stack=True, **options):
    """Run a random program; return a digest of all that was sampled, and the buffer."""
    buffer, found = made(capacity, **options), []
    rng = np.random.default_rng(seed)
    cameras = [Camera((seed, n), is_stack=is_stack) for n in range(sources)]
    for number in range(rounds):
        camera = cameras[number % sources]
        source = None if sources == 1 else FragmentSource(number % sources, number // sources)
        buffer.push(camera.block(int(rng.integers(1, 9))), source=source)
        if sources == 1 and rng.random() < 0.1:
            buffer.cut_episodes()
            camera.seen = camera.first()
        if rng.random() < 0.3 and resumed_by is not None:
            buffer = resumed_by(buffer, capacity, **options)
        if len(buffer) >= min(64, capacity):
            found.append(buffer.sample(min(64, capacity)))
    return digest_of(found), buffer


VARIANTS = {
    "one step": {},
    "three steps": {"n_step": 3},
    "prioritised": {"prioritized": True},
    "sequences": {"unit": Sequence(length=6, overlap=3)},
    "several sources": {"sources": 3, "n_step": 2},
    "no stacks": {"is_stack": False},
}


@pytest.mark.parametrize("room", ["as usual", "no more than is needed"])
@pytest.mark.parametrize("capacity", [12, 40, 101, 4_000])
@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)
def test_what_is_read_is_what_was_written(capacity, options, room, monkeypatch):
    if capacity < 40 and "unit" in options:
        pytest.skip("a sequence does not fit")
    if room == "no more than is needed":
        monkeypatch.setattr(obs_columns, "_SPARE", -1.0)
        monkeypatch.setattr(obs_columns, "_GROWTH", 1.0)
    once, _ = played(capacity, **options)
    whole(monkeypatch)
    assert played(capacity, **options)[0] == once


def resumed(buffer, capacity, **options):
    again = made(capacity, **options)
    again.load_state_dict(buffer.state_dict())
    return again


def resumed_from_whole(buffer, capacity, **options):
    """As from a checkpoint of before, which had every stack whole."""
    state = buffer.state_dict()
    saved = state["obs"]
    state["obs"] = saved["frames"][saved["numbers"]]
    again = made(capacity, **options)
    again.load_state_dict(state)
    return again


@pytest.mark.parametrize("how", [resumed, resumed_from_whole])
@pytest.mark.parametrize("capacity", [40, 4_000])
def test_a_buffer_that_was_saved_goes_on_as_if_it_had_not_been(how, capacity):
    once, _ = played(capacity, n_step=2)
    assert played(capacity, n_step=2, resumed_by=how)[0] == once


def test_rows_of_an_earlier_version_are_loaded_over_others():
    frames, film = StackedFrames(column_of("obs", STACK), 11, ENVS), Camera(1, odds=0.0)
    for row, stacks in enumerate(film.block(40).seen):
        frames.put(row % 11, stacks[None])
    rows = np.arange(5, 16) % 11
    saved = Camera(2, is_stack=False).block(10).seen  # needs a larger ring than those
    frames.load(rows, frames.check(saved, saved.shape[:2]))
    found = np.empty((saved[0].shape[0], saved[0][0].size), np.uint8)
    for row, stacks in zip(rows, saved, strict=True):
        frames.take(row * ENVS + np.arange(ENVS), found)
        assert (found == stacks.reshape(found.shape)).all()


def test_without_numba_it_is_the_same(without_numba):
    compiled = [played(40, n_step=3)[0], played(40, sources=2)[0]]
    without_numba()
    assert [played(40, n_step=3)[0], played(40, sources=2)[0]] == compiled


def test_a_frame_is_stored_once():
    column = column_of("obs", spaces.Box(0, 255, (4, 84, 84), np.uint8))
    frames, plain = StackedFrames(column, 1_001, 8), ObsRows(column, 1_001, 8)
    assert frames.nbytes < 0.27 * plain.nbytes
    camera = np.zeros((8, 4, 84, 84), np.uint8)
    rng = np.random.default_rng(0)
    for step in range(3_000):
        camera = np.concatenate(
            [camera[:, 1:], rng.integers(0, 9, (8, 1, 84, 84), np.uint8)], axis=1
        )
        frames.put(step % 1_001, camera[None])
        if step < 2_000:
            continue
        found = np.empty((8, 4 * 84 * 84), np.uint8)
        frames.take(np.arange(8) + 8 * (step % 1_001), found)
        assert (found.reshape(camera.shape) == camera).all()
    assert frames.nbytes < 0.27 * plain.nbytes, "it grew though every frame was needed once"


def test_what_is_no_stack_of_images_is_stored_as_it_comes():
    for space in (
        spaces.Box(0, 255, (84, 84, 4), np.uint8),
        spaces.Box(0, 1, (4, 8, 8), np.float32),
        spaces.Box(0, 255, (4,), np.uint8),
    ):
        assert isinstance(storage_of(column_of("obs", space), 4, 2), ObsRows)


@pytest.mark.parametrize(
    ("name", "value", "what"),
    [
        ("numbers", np.full((1, 1), 0), "numbers (1, 1)"),
        ("frames", np.zeros((9, 2, 2), np.uint8), "frames (9, 2, 2)"),
        ("frames", np.zeros((0, *FRAME), np.uint8), "there are 0 frames"),
        ("frames", None, "frames ()"),
    ],
)
def test_frames_that_do_not_fit_are_refused_and_nothing_changes(name, value, what):
    _, buffer = played(40)
    before = digest_of([buffer.sample(16)])
    _, other = played(40, seed=3)
    state = other.state_dict()
    state["obs"][name] = value
    _, same = played(40)
    with pytest.raises(OptionError, match=what.replace("(", r"\(").replace(")", r"\)")):
        same.load_state_dict(state)
    assert digest_of([same.sample(16)]) == before
