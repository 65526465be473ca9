"""One page about runs: all of it inside, and nothing of a file can break it."""

import html.parser
import json
import math
import os
import re

import numpy as np
import pytest
from made_runs import make_run

from muster import OptionError
from muster.report import chart
from muster.report.groups import grouped
from muster.report.html import Html, tag
from muster.report.page import write_report
from muster.report.runs import find_runs

EVIL = "<script>alert('x')</script>\"'><img src=x onerror=alert(1)>"


class Elements(html.parser.HTMLParser):
    """Notes every element and attribute of a page, and its text."""

    def __init__(self, text):
        super().__init__()
        self.found, self.text = [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data


@pytest.fixture
def page_of(tmp_path):
    def write(*runs, out="report.html"):
        return Elements(write_report(*runs, out=tmp_path / out).read_text())

    return write


def test_a_page_shows_runs_curves_timing_settings_system_and_command(tmp_path, page_of):
    for seed in (1, 2):
        make_run(tmp_path / "a" / f"{seed}", seed=seed, result={"replacements": seed})
    page = page_of(tmp_path / "a")
    for text in (
        "ppo on CartPole-v1", "finished", "IQM of the final return", "eval/return", "train/loss",
        "limited by learn", "eta 0.13", "rho 0.10", "exchange 0%", "Replaced nodes", "a processor",
        "Settings that differ", "hidden", "muster train ppo CartPole-v1 --seed 2",
    ):  # fmt: skip
        assert text in page.text, text
    classes = [attributes.get("class") or "" for _, attributes in page.found]
    assert classes.count("chart") == 2 and classes.count("curve c0 faint") == 4
    assert classes.count("curve c0") == classes.count("band c0") == 2


def test_a_page_asks_nobody_for_anything_and_runs_only_its_own_script(tmp_path, page_of):
    page = page_of(make_run(tmp_path / "a"))
    assert [tag for tag, _ in page.found].count("script") == 1
    for _, attributes in page.found:
        assert "style" not in attributes and not any(name.startswith("on") for name in attributes)
        for name in ("src", "href", "action", "data", "poster"):
            assert attributes.get(name, "data:").startswith("data:")
    (policy,) = (
        attributes["content"]
        for _, attributes in page.found
        if attributes.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy and "http" not in policy


def test_whatever_is_in_files_of_a_run_is_only_text(tmp_path, page_of):
    run = make_run(
        tmp_path / "run<b>", algo=EVIL, env=EVIL, metrics={EVIL: float},
        result={"limited_by": EVIL}, **{EVIL: EVIL},
    )  # fmt: skip
    machine = {"started": EVIL, "cpu": EVIL, EVIL: EVIL, "versions": {EVIL: EVIL}}
    (run / "env.json").write_text(json.dumps(machine))
    (run / "command.txt").write_text(f"{EVIL}\n</pre></main>")
    result = json.loads((run / "result.json").read_text())
    result["speed"] = {"split": {EVIL: 0.5, "b": 0.5}}
    (run / "result.json").write_text(json.dumps(result))
    (run / "<script>.mp4").write_bytes(b"video")
    page = page_of(run)
    kinds = [tag for tag, _ in page.found]
    assert kinds.count("script") == 1 and "img" not in kinds and "b" not in kinds
    assert page.text.count(EVIL) > 8 and "</pre></main>" in page.text


@pytest.mark.parametrize("name", ["config.yaml", "result.json", "env.json", "metrics.jsonl"])
@pytest.mark.parametrize(
    "content",
    [
        b"", b"\xff\xfe", b"[]",
        b'{"speed": 1, "rho": "x", "replacements": [], "versions": 3, "limited_by": 2}',
        b'{"speed": {"split": [1]}, "eta": 1e999}',
        b'{"speed": {"split": {"a": -1, "b": "x"}}}',
    ],
)  # fmt: skip
def test_a_page_of_damaged_files_shows_the_rest(name, content, tmp_path, page_of):
    (make_run(tmp_path / "a") / name).write_bytes(content)
    assert "muster train ppo CartPole-v1" in page_of(tmp_path / "a").text


@pytest.mark.parametrize(
    "values", [[1.7e308, -1.7e308, 0.0], [0.0] * 3, [5e-324, 0.0, 1.0], [1e15, 1e15 + 1, 1e15]]
)
def test_numbers_at_the_edge_of_what_there_is_are_drawn_inside_the_picture(
    values, tmp_path, page_of
):
    for seed in (0, 1):
        make_run(tmp_path / "a" / str(seed), returns=values, seed=seed)
    page = page_of(tmp_path / "a")
    points = [attributes["points"] for tag, attributes in page.found if tag == "polyline"]
    assert points and "nan" not in str(points)
    for x, y in (map(float, pair.split(",")) for each in points for pair in each.split()):
        assert 0 <= x <= chart.WIDTH and 0 <= y <= chart.HEIGHT


def test_runs_that_differ_only_in_their_seed_are_one_group(tmp_path):
    for seed in range(3):
        make_run(tmp_path / f"a{seed}", seed=seed, lr=0.1)
    make_run(tmp_path / "b", lr=0.2)
    make_run(tmp_path / "c", algo="dqn")
    groups = grouped(find_runs(tmp_path))
    assert [(group.label, len(group.runs)) for group in groups] == [
        ("ppo lr=0.1", 3), ("ppo lr=0.2", 1), ("dqn", 1)
    ]  # fmt: skip
    *seeds, middle = groups[0].lines("eval/return")
    assert [line.faint for line in seeds] == [True] * 3 and middle.label.endswith("IQM of 3")
    assert list(middle.y) == [20.0, 100.0, 90.0]  # the same in all of them


def test_a_group_has_a_curve_only_where_all_of_its_seeds_have_values(tmp_path):
    make_run(tmp_path / "a", seed=1, returns=[10.0, 20.0])
    make_run(tmp_path / "b", seed=2, returns=[20.0, 40.0, 60.0, 80.0])
    (group,) = grouped(find_runs(tmp_path))
    middle = group.lines("eval/return")[-1]
    assert (list(middle.x), list(middle.y)) == ([1000, 2000], [15.0, 30.0])


def test_a_long_curve_keeps_its_spikes_its_first_and_its_last():
    x = np.arange(100_000.0)
    y = np.zeros(100_000)
    y[54_321], y[77_777] = 9.0, -9.0
    few_x, few_y = chart.thinned(x, y)
    assert len(few_x) < 400 and {54_321.0, 77_777.0, 0.0, 99_999.0} <= set(few_x)
    assert (few_y.max(), few_y.min()) == (9.0, -9.0)


@pytest.mark.parametrize(("low", "high"), [(0, 1), (-3, 500), (1e-9, 2e-9), (0, 1e100), (7, 7)])
def test_an_axis_has_a_few_round_numbers(low, high):
    axis = chart._Axis.over([np.array([low, high], float)], 0, 100)
    assert 2 <= len(axis.ticks()) <= 7
    assert all(
        axis.low <= each <= axis.high or math.isclose(each, axis.low) for each in axis.ticks()
    )


def test_a_video_is_part_of_the_page_up_to_a_size(tmp_path, page_of, monkeypatch):
    run = make_run(tmp_path / "a")
    (run / "videos").mkdir()
    (run / "videos" / "small.mp4").write_bytes(b"abc")
    (run / "videos" / "large.mp4").write_bytes(b"x" * 101)
    os.mkfifo(run / "pipe.mp4")
    monkeypatch.setattr("muster.report.videos.MOST_BYTES", 100)
    page = page_of(run)
    (video,) = (attributes for tag, attributes in page.found if tag == "video")
    assert video["src"] == "data:video/mp4;base64,YWJj"
    assert re.search(r"large\.mp4: it has more than 100 bytes", page.text)
    assert "pipe.mp4: it is not a regular file" in page.text


def test_a_report_takes_the_place_of_a_report_and_of_nothing_else(tmp_path, page_of):
    run = make_run(tmp_path / "a")
    page_of(run)
    page_of(run)  # again
    (tmp_path / "thesis.html").write_text("<!doctype html><p>mine")
    (tmp_path / "link.html").symlink_to(tmp_path / "report.html")
    os.mkfifo(tmp_path / "pipe.html")
    for name in ("thesis.html", "link.html", "pipe.html", "a"):
        with pytest.raises(OptionError, match="exists, and is not a report"):
            page_of(run, out=name)
    assert (tmp_path / "thesis.html").read_text() == "<!doctype html><p>mine"
    with pytest.raises(OptionError, match="could not be written"):
        page_of(run, out="nowhere/report.html")


def test_too_many_runs_for_a_page_are_refused(tmp_path, page_of, monkeypatch):
    monkeypatch.setattr("muster.report.page.MOST_RUNS", 1)
    make_run(tmp_path / "a")
    make_run(tmp_path / "b")
    with pytest.raises(OptionError, match="2 runs are too many"):
        page_of(tmp_path)


def test_only_what_is_known_as_html_is_not_escaped():
    assert tag("p", "<b>", Html("<i>"), title='"') == '<p title="&quot;">&lt;b&gt;<i></p>'
