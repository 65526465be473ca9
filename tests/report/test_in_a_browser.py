"""The page and the live page in a real browser: what a person sees and can do there."""

import json
import math
import os
import random
import threading
from pathlib import Path

import pytest
from chromium import browser, needs_chromium
from made_runs import make_run, signals_of, trained

from muster.report.live import LivePage
from muster.report.page import write_report

pytestmark = [pytest.mark.slow, needs_chromium, pytest.mark.timeout(180)]

PICTURES = os.environ.get("MUSTER_PICTURES")
"""A folder for screenshots, if somebody wants to look at them."""


@pytest.fixture(scope="module")
def chromium():
    with browser() as found:
        yield found


@pytest.fixture
def opened(chromium):
    chromium.requests.clear()
    chromium.complaints.clear()
    return chromium


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """A page of two settings with five seeds each."""
    place = tmp_path_factory.mktemp("runs")
    for lr, top in ((1e-3, 480), (1e-4, 320)):
        for seed in range(5):
            chance = random.Random(top + seed)
            made(place / f"lr-{lr}" / str(seed), lr, top, seed, chance)
    return write_report(place / "lr-0.001", place / "lr-0.0001", out=place / "report.html")


def made(path, lr, top, seed, chance):
    def rising(step, noise):
        return max(9.0, top * (1 - math.exp(-step / 13_000)) + chance.gauss(0, noise))

    make_run(
        path,
        seed=seed,
        lr=lr,
        returns=[rising(1000 * k, 25) for k in range(40)],
        metrics={
            "collect/return_100": lambda step: rising(step, 9),
            "train/policy_loss": lambda step: chance.gauss(-0.005, 0.002),
            "train/value_loss": lambda step: 40 + 20 * math.exp(-step / 9000) + chance.gauss(0, 3),
            "train/entropy": lambda step: 0.7 * math.exp(-step / 40_000) + chance.gauss(0, 0.01),
            "train/<b>evil</b>": lambda step: 1.0,
        },
        result={"env_steps_per_s": 11_000.0, "replacements": seed == 2},
    )


def keep_picture(browser, name):
    if PICTURES:
        browser.picture(Path(PICTURES) / name)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [400, 1200])
def test_a_report_is_drawn_without_complaints_or_requests(width, dark, opened, report):
    opened.open(report.as_uri(), width, 1000, dark)
    keep_picture(opened, f"report-{width}-{'dark' if dark else 'light'}.png")
    assert opened.complaints == []
    assert [url for url in opened.requests if not url.startswith("data:")] == [report.as_uri()]
    assert opened.run("document.querySelectorAll('.chart').length") == 6
    assert opened.run("document.querySelectorAll('polyline.curve:not(.faint)').length") == 12
    # Nothing is wider than the window but what scrolls by itself.
    assert opened.run("document.documentElement.scrollWidth") == width
    for curve in ("polyline.c0", "polyline.c1", ".band.c0"):
        box = f"document.querySelector('{curve}').getBoundingClientRect()"
        assert opened.run(f"{box}.width > 150 && {box}.height > 20"), curve
    colours = opened.run(
        "['.curve.c0', '.curve.c1', 'body'].map(each => {"
        "  const style = getComputedStyle(document.querySelector(each));"
        "  return each === 'body' ? style.backgroundColor : style.stroke; })"
    )
    assert len(set(colours)) == 3
    assert (sum(json.loads(colours[2].replace("rgb(", "[").replace(")", "]"))) < 200) == dark


def test_text_is_large_enough_to_be_read_on_a_phone(opened, report):
    opened.open(report.as_uri(), 400, 900)
    height = "document.querySelector('.chart text').getBoundingClientRect().height"
    assert opened.run(height) >= 9


def test_a_pointer_shows_the_values_of_all_curves(opened, report):
    opened.open(report.as_uri())
    box = opened.run(
        "(() => { const chart = document.querySelector('.chart'); chart.scrollIntoView();"
        "const box = chart.getBoundingClientRect(); return [box.x, box.y, box.width]; })()"
    )
    opened.point(box[0] + box[2] / 2, box[1] + 50)
    shown = opened.run("document.querySelector('.values').textContent")
    assert "steps: ppo lr=0.0" in shown and shown.count("IQM of 5") == 2
    keep_picture(opened, "pointer.png")
    opened.point(1, 1)
    assert opened.run("document.querySelector('.values').textContent") == ""


def test_a_keyboard_reaches_the_curves_and_shows_their_values(opened, report):
    opened.open(report.as_uri())
    for _ in range(20):
        opened.press("Tab")
        if opened.run("document.activeElement.classList.contains('chart')"):
            break
    label = opened.run("document.activeElement.getAttribute('aria-label')")
    assert label.startswith("eval/return over env steps. Last values: ppo lr=")
    values = "document.activeElement.parentElement.querySelector('.values').textContent"
    opened.press("End")
    assert opened.run(values).startswith("40,000 steps")
    opened.press("Home")
    assert opened.run(values).startswith("1,000 steps")
    opened.press("ArrowRight")
    assert opened.run(values).startswith("2,000 steps")


def test_a_name_like_a_script_is_only_a_name(opened, report):
    opened.open(report.as_uri())
    assert opened.run("document.querySelectorAll('figcaption')[5].textContent") == (
        "train/<b>evil</b>"
    )
    assert opened.run("document.querySelectorAll('b, script').length") == 1


def test_the_live_page_goes_on_with_its_run_and_stops_it(opened, tmp_path):
    run = make_run(tmp_path / "run", status="failed")
    with trained(run) as child, LivePage(run) as live:
        threading.Thread(target=live.serve, daemon=True).start()
        opened.open(live.url, 400, 900)
        opened.wait_for("document.getElementById('status').textContent === 'running'")
        opened.run("document.querySelector('details').open = true")
        opened.run("document.querySelector('.chart').focus()")
        with open(run / "metrics.jsonl", "a") as file:
            file.write('{"env_step": 9000, "train_iter": 1, "seconds": 1, "own/new": 1}\n')
        opened.wait_for("document.body.textContent.includes('own/new')")
        assert opened.run("document.querySelector('details').open")  # as the reader left it
        assert opened.run("document.activeElement.classList.contains('chart')")
        assert opened.run("document.documentElement.scrollWidth") == 400
        keep_picture(opened, "live.png")
        opened.run("document.getElementById('stop').focus()")
        opened.press("Enter")
        assert "press again" in opened.run("document.getElementById('stop').textContent")
        opened.press("Enter")
        said = "document.getElementById('stop').textContent"
        opened.wait_for(f"{said} === 'The run was asked to save and stop.'")
        assert signals_of(child) == 1  # and it has ended
        opened.wait_for("document.getElementById('status').textContent === 'failed'")
        assert opened.run("document.getElementById('stop').disabled")
        assert opened.complaints == []
        own = live.url.partition("?")[0]
        assert all(url.startswith((own, "data:")) for url in opened.requests)
        live.close()
