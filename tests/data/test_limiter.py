"""Samples per insert: who may go on, and that somebody always may."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster import OptionError
from muster.data import SamplesPerInsert


def test_nobody_samples_and_everybody_inserts_below_min_size():
    limiter = SamplesPerInsert(ratio=2.0, min_size=10, error_buffer=4.0)
    for _ in range(10):
        assert not limiter.may_sample()
        assert limiter.may_insert()
        limiter.note_insert()
    assert limiter.may_sample()


def test_golden_numbers():
    """At 10 inserts the error is 0: samples may take it to -4, inserts to +4."""
    limiter = SamplesPerInsert(ratio=2.0, min_size=10, error_buffer=4.0)
    limiter.note_insert(10)
    assert limiter.may_sample(4) and not limiter.may_sample(5)
    limiter.note_sample(3)
    assert limiter.may_sample(1) and not limiter.may_sample(2)
    limiter.note_sample(1)
    assert not limiter.may_sample(1)
    limiter = SamplesPerInsert(ratio=2.0, min_size=10, error_buffer=4.0)
    limiter.note_insert(10)
    assert limiter.may_insert(2) and not limiter.may_insert(3)
    limiter.note_insert(2)
    assert not limiter.may_insert(1)
    limiter.note_sample(2)
    assert limiter.may_insert(1) and not limiter.may_insert(2)


@settings(max_examples=200, deadline=None)
@given(
    ratio=st.floats(0.05, 20),
    min_size=st.integers(1, 50),
    insert=st.integers(1, 8),
    sample=st.integers(1, 64),
    order=st.lists(st.booleans(), min_size=20, max_size=200),
)
def test_one_side_may_always_go_on_and_the_ratio_is_kept(ratio, min_size, insert, sample, order):
    room = max(1.0, ratio, (sample + insert * ratio) / 2)
    limiter = SamplesPerInsert(ratio, min_size, room)
    for prefers_insert in order:
        may = limiter.may_insert(insert), limiter.may_sample(sample)
        assert any(may)
        if may[0] and (prefers_insert or not may[1]):
            limiter.note_insert(insert)
        else:
            limiter.note_sample(sample)
        error = (limiter.inserts - min_size) * ratio - limiter.samples
        # The block that crosses min_size may be larger than the buffer; it was let in whole.
        assert error <= max(room, (insert - 1) * ratio) + 1e-9
        assert limiter.samples == 0 or error >= -room - 1e-9


def test_a_loop_that_never_asks_to_insert_needs_little_room():
    limiter = SamplesPerInsert(ratio=8.0, min_size=16, error_buffer=8.0)
    updates = 0
    for _ in range(1000):
        limiter.note_insert(8)
        while limiter.may_sample(64):
            limiter.note_sample(64)
            updates += 1
    assert updates == 998


def test_a_standstill_is_refused_before_it_happens():
    limiter = SamplesPerInsert(ratio=1.0, min_size=1, error_buffer=10.0)
    limiter.note_insert(1)
    assert limiter.may_insert(8) and not limiter.may_sample(64)
    with pytest.raises(OptionError, match=r"error_buffer=36\b"):
        limiter.may_insert(8)


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from([0.25, 0.3, 1.0, 2.5, 32.0, 64.0]),
    st.integers(1, 2_000),
    st.integers(0, 4_000),
    st.integers(0, 100_000),
    st.integers(1, 5_000),
)
def test_what_is_missing_is_just_what_lets_samples_go_on(ratio, least, inserts, samples, wanted):
    limiter = SamplesPerInsert(ratio, least, error_buffer=max(1.0, ratio))
    limiter.note_insert(inserts)
    limiter.note_sample(samples)
    missing = limiter.missing(wanted)
    assert (missing == 0) == limiter.may_sample(wanted)
    exact = ratio != 0.3  # else rounding may be out by one
    limiter.note_insert(missing)
    assert limiter.may_sample(wanted) or not exact
    limiter.note_insert(1)
    assert limiter.may_sample(wanted)
    limiter.note_insert(-2)
    assert not missing or not limiter.may_sample(wanted) or not exact


def test_it_goes_on_where_it_was_saved():
    limiter, other = (SamplesPerInsert(0.3, 5, 8.0) for _ in range(2))
    limiter.note_insert(17)
    limiter.note_sample(4)
    other.load_state_dict(json.loads(json.dumps(limiter.state_dict())))
    assert (other.inserts, other.samples) == (17, 4)
    assert other.state_dict() == limiter.state_dict()


def test_the_state_of_another_ratio_is_refused():
    state = SamplesPerInsert(0.3, 5, 8.0).state_dict()
    with pytest.raises(OptionError, match=r"0\.3.*0\.4"):
        SamplesPerInsert(0.4, 5, 8.0).load_state_dict(state)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ((0.0, 1, 2.0), "ratio=0.0"),
        ((float("nan"), 1, 2.0), "ratio=nan"),
        ((float("inf"), 1, float("inf")), "ratio=inf"),
        ((1.0, 0, 2.0), "min_size=0"),
        ((1.0, 1, 0.5), "error_buffer=0.5"),
        ((3.0, 1, 2.0), "error_buffer=2.0"),
    ],
)
def test_options_without_sense_are_refused(options, what):
    with pytest.raises(OptionError) as caught:
        SamplesPerInsert(*options)
    assert str(caught.value).startswith(f"{what} is not possible")
