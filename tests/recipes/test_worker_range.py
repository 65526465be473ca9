"""`--workers 4..16`: which ranges there can be, and what each means on an engine."""

import pytest

from muster.errors import OptionError
from muster.recipes import worker_range
from muster.recipes.resuming import plan_resume
from muster.recipes.settings import resolve
from muster.run.config_io import from_yaml, to_yaml


def refusal(algo="impala", **options):
    with pytest.raises(OptionError) as refused:
        resolve(algo, "CartPole-v1", options)
    return refused.value.args


@pytest.mark.parametrize(
    ("given", "why", "fix"),
    [
        ("16..4", "the lower number comes first", "workers=4..16"),
        ("0..4", "this process alone", "workers=3..4"),
        ("0..0", "this process alone", "workers=3..3"),
        ("4..", "a range such as 4..16", "workers=4..16"),
        ("..4", "a range such as 4..16", "workers=4..16"),
        ("a..b", "a range such as 4..16", "workers=4..16"),
        ("4...8", "a range such as 4..16", "workers=4..16"),
        ("-1..4", "a range such as 4..16", "workers=4..16"),
        ("٤..٨", "a range such as 4..16", "workers=4..16"),
        ("4", "a range such as 4..16", "workers=4"),
        (True, "a range such as 4..16", "workers=4"),
        ("4..257", "at most 256", "workers=4..256"),
        ("2..8", "three processes", "workers=3..8"),
        ("1..2", "three processes", "workers=3..3"),
    ],
)
def test_a_bad_range_is_refused_in_three_parts(given, why, fix):
    what, because, to_try = refusal(workers=given)
    assert str(given) in what and why in because and to_try == fix


def test_both_ends_of_a_range_have_to_be_possible():
    what, _, fix = refusal("dqn", workers="4..8", replay_shards=2)
    assert "workers=4..8 and replay_shards=2" in what and fix == "workers=5..8"
    what, _, _ = refusal("impala", workers="3..40", max_lag=4, engine="ray")
    assert "max_lag=4 and workers=3..40" in what


def test_workers_in_step_can_be_a_range_only_where_it_is_one_number(monkeypatch):
    what, why, fix = refusal("ppo", workers="2..4", engine="ray")
    assert "workers=2..4" in what and "in step" in why and fix == "workers=4"
    monkeypatch.setattr(worker_range, "whole_cores", lambda: 3)
    assert resolve("ppo", "CartPole-v1", {"workers": "2..4"}).workers == 3
    assert "contradict" in refusal("ppo", workers="2..4", learners=2)[0]


@pytest.mark.parametrize(("cores", "workers"), [(1, 4), (6, 6), (64, 16)])
def test_on_this_machine_a_range_is_as_many_as_there_are_cores(monkeypatch, cores, workers):
    monkeypatch.setattr(worker_range, "whole_cores", lambda: cores)
    settings = resolve("apex", "CartPole-v1", {"workers": "4..16"})
    assert (settings.workers, settings.elastic) == (workers, None)


def test_on_ray_a_range_is_of_nodes_that_join_and_leave():
    settings = resolve("apex", "CartPole-v1", {"workers": "4..16", "engine": "ray"})
    assert settings.workers == 16
    assert settings.elastic == worker_range.WorkerRange(4, 16)


def test_a_run_keeps_its_range_and_a_resumed_one_may_change_it(tmp_path):
    settings = resolve("dqn", "CartPole-v1", {"workers": "4..16"})
    text = to_yaml(settings.options)
    assert from_yaml(text, type(settings.options)).workers == "4..16"
    (tmp_path / "config.yaml").write_text("algo: dqn\nenv: CartPole-v1\nworkers: 4..16\n")
    (tmp_path / "checkpoints").mkdir()
    for given in (5, "3..6"):
        resumed = plan_resume(None, None, {"run_dir": str(tmp_path), "workers": given})
        assert resumed.changes["workers"] == ("4..16", given)
