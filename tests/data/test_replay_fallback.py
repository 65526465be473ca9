"""Without numba the same program gives the same bits."""

import numpy as np
from gymnasium import spaces
from histories import World, digest_of, run, vector_buffer

from muster.data import ReplayBuffer, Sequence, StepBlock, Transition, kernels, sum_tree
from muster.data.steps import FragmentSource


def play(prioritized, n_step):
    """Run a long random program with ends of every kind; return a digest of all it sampled."""
    rng, batches = np.random.default_rng(n_step), []
    buffer = vector_buffer(300, 3, n_step=n_step, gamma=0.97, prioritized=prioritized)
    world = World(3)
    for _ in range(60):
        run(buffer, world, 7, rng, 0.1)
        for _ in range(3):
            batches.append(buffer.sample(17))
            buffer.update_priorities(batches[-1].index, rng.normal(size=17))
    return digest_of(batches)


def play_sequences(prioritized):
    """Fragments of two sources in turn, drawn as sequences and as transitions."""
    rng, batches = np.random.default_rng(1), []
    unit = Sequence(5, overlap=2, burn_in=1, n=3)
    buffers = [
        vector_buffer(90, 3, gamma=0.97, prioritized=prioritized, unit=each)
        for each in (unit, Transition(3))
    ]
    worlds = World(3), World(3)
    for turn in range(40):
        rows = [worlds[turn % 2].step(*(rng.random((2, 3)) < 0.1)) for _ in range(4)]
        data = StepBlock.of(*(np.stack(each) for each in zip(*rows, strict=True)))
        for buffer in buffers:
            buffer.push(data, source=FragmentSource(turn % 2, 1 + turn // 2))
            batch = buffer.sample(7)
            if batch is not None:
                batches.append(batch)
                buffer.update_priorities(batch.index, rng.normal(size=7))
    return digest_of(batches)


def play_images():
    space = spaces.Dict({"camera": spaces.Box(0, 255, (6, 5), np.uint8), "n": spaces.Discrete(9)})
    buffer = ReplayBuffer(40, space, spaces.Box(-1, 1, (2,)), num_envs=1, n_step=2)
    space.seed(0)
    flags = np.random.default_rng(0).random((90, 2, 1)) < 0.2
    for terminated, truncated in flags:
        one, two = ({key: np.array([v]) for key, v in space.sample().items()} for _ in range(2))
        buffer.add(one, np.ones((1, 2)), np.ones(1), two, terminated, truncated)
    return digest_of([buffer.sample_many(5, 40)])


def test_a_whole_program_gives_the_same_bits(without_numba):
    assert kernels.resolve is not kernels.resolve_numpy
    programs = [(p, n) for p in (False, True) for n in (1, 4)]
    compiled = [play(*each) for each in programs] + [play_images()]
    compiled += [play_sequences(False), play_sequences(True)]
    without_numba()
    assert kernels.resolve is kernels.resolve_numpy and sum_tree.find is sum_tree.find_numpy
    sequences = [play_sequences(False), play_sequences(True)]
    assert [play(*each) for each in programs] + [play_images()] + sequences == compiled
