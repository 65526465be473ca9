"""Whether some runs are better than others, and whether that can be said at all."""

import json

import pytest
from made_runs import make_run

import muster


def seeds(folder, returns, **options):
    for seed, value in enumerate(returns):
        make_run(folder / f"{seed}", seed=seed, returns=[1.0, value + 5, value], **options)
    return folder


def test_the_better_side_is_named_with_its_interval(tmp_path):
    a = seeds(tmp_path / "a", [480, 490, 500, 495, 470, 485])
    b = seeds(tmp_path / "b", [200, 300, 250, 280, 220], algo="dqn")
    found = muster.compare(a, b)
    assert (found.env, found.a.algo, found.b.algo) == ("CartPole-v1", "ppo", "dqn")
    assert found.a.iqm == pytest.approx((480 + 485 + 490 + 495) / 4)
    assert found.b.iqm == pytest.approx((220 + 250 + 280) / 3)
    assert found.difference == pytest.approx(487.5 - 250)
    assert found.a.interval.low <= found.a.iqm <= found.a.interval.high
    assert found.difference_interval.low > 0 and found.probability == 1.0
    assert found.conclusion.startswith("A is better") and found.enough_seeds
    assert muster.compare(b, a).conclusion.startswith("B is better")
    assert json.loads(json.dumps(found.as_json()))["a"]["iqm"] == pytest.approx(487.5)


def test_sides_that_overlap_show_no_difference(tmp_path):
    a = seeds(tmp_path / "a", [100, 200, 300, 400, 500])
    b = seeds(tmp_path / "b", [110, 190, 310, 390, 490])
    found = muster.compare(a, b)
    assert found.conclusion == "no difference is shown: its interval contains 0"
    assert found.probability == pytest.approx(13 / 25)


def test_with_fewer_than_five_seeds_nothing_is_concluded(tmp_path):
    a = seeds(tmp_path / "a", [500, 500, 500, 500])
    b = seeds(tmp_path / "b", [1, 1, 1, 1, 1])
    found = muster.compare(a, b)
    assert not found.enough_seeds
    assert found.conclusion == "too few seeds to conclude: 4 and 5 seeds, and 5 of each are needed"


def test_the_last_return_counts_or_the_best(tmp_path):
    a, b = seeds(tmp_path / "a", [10]), seeds(tmp_path / "b", [20])
    assert muster.compare(a, b).a.returns == (10.0,)
    assert muster.compare(a, b, score="best").a.returns == (15.0,)
    with pytest.raises(muster.OptionError, match="final or best"):
        muster.compare(a, b, score="last")


def test_runs_that_have_not_ended_or_have_no_return_are_left_out_and_named(tmp_path):
    a, b = seeds(tmp_path / "a", [10, 20]), seeds(tmp_path / "b", [20])
    make_run(a / "failed", status="failed")
    make_run(a / "unjudged", returns=[])
    found = muster.compare([a / "0", a], b)
    assert len(found.a.runs) == 2
    assert [each.partition(": ")[2] for each in found.a.left_out] == [
        "failed",
        "no evaluation",
    ]
    with pytest.raises(muster.OptionError, match=r"(?s)no run of .*failed has a return"):
        muster.compare(a / "failed", b)


def test_what_cannot_be_compared_is_refused(tmp_path):
    a, b = seeds(tmp_path / "a", [10]), seeds(tmp_path / "b", [20], env="Acrobot-v1")
    with pytest.raises(muster.OptionError, match="Acrobot-v1, CartPole-v1"):
        muster.compare(a, b)
    with pytest.raises(muster.OptionError, match="on both sides"):
        muster.compare(a, [a / "0"])
