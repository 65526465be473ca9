"""metrics.jsonl as arrays, whoever wrote it."""

import json
import math

import numpy as np
import pytest

from muster.recipes.result import RunResult
from muster.run.curves import read_curves


def line(step, **values):
    return json.dumps({"env_step": step, "train_iter": step, "seconds": 0.5, **values}) + "\n"


@pytest.fixture
def file(tmp_path):
    return tmp_path / "metrics.jsonl"


def test_a_metric_has_the_lines_that_it_is_in(file):
    file.write_text(line(1, loss=0.5) + line(2, loss=0.25, score=7) + line(3, score=8))
    curves = read_curves(file)
    assert list(curves.metrics) == ["loss", "score"]
    assert list(curves.metrics["score"].env_step) == [2, 3]
    assert list(curves.metrics["score"].value) == [7.0, 8.0]
    columns = curves.columns()
    assert list(columns["env_step"]) == [1, 2, 3]
    np.testing.assert_array_equal(columns["score"], [math.nan, 7.0, 8.0])


def test_the_result_of_a_run_gives_its_learning_curve(file):
    file.write_text(line(1, loss=0.5) + line(2))
    result = RunResult(
        "ppo", "e", 0, 0, 2, 2, 1.0, 2.0, None, None, 0, "", "steps", file.parent, None
    )
    np.testing.assert_array_equal(result.curve()["loss"], [0.5, math.nan])


def test_a_line_that_is_none_is_passed_over_and_counted(file):
    bad = [
        "{",
        "[]",
        '"text"',
        '{"env_step": 1}',
        '{"env_step": 1.5, "train_iter": 1}',
        "[" * 10**5,
    ]
    bad += ['{"env_step": -1, "train_iter": 1}', '{"env_step": 1e999, "train_iter": 1}', ""]
    file.write_text(line(1, loss=1) + "".join(f"{each}\n" for each in bad) + line(2, loss=2) + "{")
    curves = read_curves(file)
    assert list(curves.metrics["loss"].value) == [1.0, 2.0]
    assert curves.passed_over == len(bad)  # the last one is being written


def test_a_value_that_is_no_finite_number_is_left_out(file):
    odd = {"a": "x", "b": None, "c": math.nan, "d": math.inf, "e": True, "f": 10**400, "": 1}
    file.write_text(line(1, loss=1, **odd, **{"n" * 1000: 1}))
    assert list(read_curves(file).metrics) == ["loss"]


def test_names_without_end_are_bounded(file):
    file.write_text("".join(line(1, **{f"m{k}": 1}) for k in range(2000)))
    assert len(read_curves(file).metrics) == 500


def test_of_one_metric_only_its_lines_and_the_last_are_read(file):
    file.write_text(line(1, loss=1) + line(2, score=7) + line(3, loss=1) + line(4, loss=2) + "{")
    curves = read_curves(file, only="score")
    assert list(curves.metrics["score"].env_step) == [2]
    assert list(curves.axes["env_step"]) == [2, 4]


def test_a_file_that_is_too_large_is_read_in_parts_from_its_begin_to_its_end(file):
    file.write_text("".join(line(step, loss=step) for step in range(20_000)))
    curves = read_curves(file, most_bytes=100_000)
    steps = curves.metrics["loss"].env_step
    assert curves.partial and curves.passed_over == 0
    assert steps[0] == 0 and steps[-1] == 19_999 and 1_000 < len(steps) < 3_000
    assert (np.diff(steps) > 0).all() and np.diff(steps).max() < 500


def test_a_line_without_end_is_bounded(file):
    file.write_text(line(0, loss=0, text="x" * (3 << 20)) + line(1, loss=1))
    curves = read_curves(file)
    assert list(curves.metrics["loss"].value) == [1.0] and curves.passed_over >= 1
