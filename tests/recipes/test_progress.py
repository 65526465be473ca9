"""What a person sees of a run: a bar that fits, lines in a file, or nothing."""

import io
import re

import pytest

from muster import Task
from muster.recipes.progress import Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def run(file, loops=20, total=200, fail=False, **options):
    def count(ctx):
        ctx.keep("env_step")
        ctx.env_step = ctx.get("env_step", 0) + 10
        ctx.metrics = {"collect/return_100": 12.34}
        if fail and ctx.env_step == 50:
            raise RuntimeError("fault")

    task = Task().use(Progress(total, file=file, **options)).use(count)
    try:
        task.run(loops)
    except RuntimeError:
        assert fail
    return file.getvalue()


@pytest.fixture(autouse=True)
def eighty_columns(monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm-256color")


def bare(line):
    return re.sub(r"\x1b\[[0-9;]*[mK]", "", line)


def test_in_a_file_there_are_plain_lines():
    lines = run(io.StringIO()).splitlines()
    assert len(lines) == 2, "the first loop and the last one, as it took less than two seconds"
    assert re.fullmatch(r"200/200 steps  [\d,]+/s  return 12\.3  in 0:00", lines[-1])
    assert "\x1b" not in lines[0]


@pytest.mark.parametrize("total", [200, 10**9, 10**15])
def test_on_a_terminal_it_is_one_line_that_fits(total):
    shown = run(Terminal(), total=total)
    assert shown.count("\n") == 1 and shown.endswith("\n")
    frames = [bare(frame) for frame in shown.strip("\n").split("\r")]
    assert all(len(frame) <= 77 for frame in frames)
    assert f"200/{total:,} steps" in frames[-1]


def test_the_bar_is_drawn_where_there_is_room():
    assert "━" in run(Terminal())


def test_the_terminal_is_not_changed_so_nothing_has_to_be_restored():
    changing = r"\x1b\[\?"  # hide the cursor, switch screens, take the mouse
    assert not re.search(changing, run(Terminal())) and not re.search(
        changing, run(Terminal(), fail=True)
    )


def test_after_a_failure_the_next_word_is_on_a_line_of_its_own():
    assert run(Terminal(), fail=True).endswith("\n")
    assert run(Terminal(), fail=True, quiet=True) == ""


def test_it_is_written_at_most_five_times_a_second(monkeypatch):
    now = [0.0]

    def clock():
        now[0] += 0.001
        return now[0]

    monkeypatch.setattr("muster.recipes.progress.time.monotonic", clock)
    assert run(Terminal(), loops=2_000, total=20_000).count("\r") == 11, "two seconds, and the end"


def test_quiet_is_quiet():
    assert run(Terminal(), quiet=True) == run(io.StringIO(), quiet=True) == ""


def test_a_terminal_that_cannot_go_back_gets_plain_lines(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    assert "\r" not in run(Terminal())
