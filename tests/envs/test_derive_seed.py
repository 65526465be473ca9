"""Seeds: the same for the same path everywhere, and different for everybody else."""

import os
import subprocess
import sys

import numpy as np
import pytest

from muster.errors import OptionError
from muster.seeding import derive_seed, generator, numbered_seeds

GOLDEN = [
    6197665364228624309,
    2175555080697395620,
    3949685201399309336,
    5721923861694043569,
]


def test_seeds_are_these_and_stay_these_in_every_process():
    # Golden numbers: a change of any of them changes every run that was ever done.
    known = [
        derive_seed(0),
        derive_seed(0, "env", 3, "episode", 17),
        derive_seed(-5, "explore"),
        derive_seed(2**100, "ä", 0),
    ]
    assert known == GOLDEN
    code = "from muster.seeding import derive_seed as d; print(d(0, 'env', 3, 'episode', 17))"
    for hash_seed in ("0", "1"):
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=300,
        )
        assert int(done.stdout) == GOLDEN[1]


def test_a_seed_has_63_bits_and_uses_all_of_them():
    seeds = [derive_seed(0, number) for number in range(2000)]
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert max(seeds) > 2**62 and min(seeds) < 2**54
    ones = np.array([[seed >> bit & 1 for bit in range(63)] for seed in seeds]).mean(axis=0)
    assert ((ones > 0.45) & (ones < 0.55)).all()


def test_different_paths_have_different_seeds():
    paths = [
        (0,),
        (1,),
        (0, "a", "b"),
        (0, "ab"),
        (0, "a", "", "b"),
        (0, "b", "a"),
        (0, "1"),
        (0, 1),
        (0, 1, 1),
        (0, 11),
        (0, "i1;"),
        (0, "a", "s1:b"),
        (0, "as1:b"),
        (1, 0),
    ]
    assert len({derive_seed(*path) for path in paths}) == len(paths)
    assert len({derive_seed(0, "env", e, "episode", n) for e in range(50) for n in range(50)}) == (
        2500
    )


def test_numpy_integers_are_integers_and_nothing_else_is_taken():
    assert derive_seed(np.int64(3), np.uint8(4)) == derive_seed(3, 4)
    for wrong in (True, 1.0, None, b"x", np.bool_(True)):
        with pytest.raises(OptionError, match="cannot be derived"):
            derive_seed(0, wrong)


def test_numbered_seeds_are_the_derived_ones():
    seeds = numbered_seeds(7, "env", 2, "episode")
    assert [seeds(n) for n in range(5)] == [
        derive_seed(7, "env", 2, "episode", n) for n in range(5)
    ]


def test_generators_of_the_same_path_draw_the_same_numbers():
    one, two, other = generator(0, "a"), generator(0, "a"), generator(0, "b")
    assert isinstance(one.bit_generator, np.random.PCG64)
    drawn = one.random(5)
    assert (drawn == two.random(5)).all() and (drawn != other.random(5)).any()
