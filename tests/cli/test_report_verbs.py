"""`muster runs`, `muster compare` and `muster report` as a person meets them."""

import json

import pytest
from made_runs import make_run

from muster.cli.main import main


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_table_of_runs_fits_80_columns_and_keeps_the_end_of_a_path(here, capsys):
    make_run(
        here / "runs" / "e" / "ppo" / "20260101-000000-0", env="A-Very-Long-Environment-Id-v12"
    )
    make_run(
        here / "runs" / ("x" * 100), algo="module:a_long_name", seed=2**31, returns=[-1234567.8]
    )
    assert main(["runs"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert len(shown) == 3 and max(map(len, shown)) <= 80
    assert shown[0].split() == ["status", "algo", "env", "seed", "steps", "best", "final", "run"]
    assert any("A-Very-Long..." in line and line.endswith("-0") for line in shown)
    assert any("-1.23M" in line for line in shown)


def test_a_name_of_a_file_is_no_command_to_the_terminal(here, capsys):
    make_run(here / "runs" / "a", env="\x1b[2J\nEvil\u202e")
    assert main(["runs"]) == 0
    shown = capsys.readouterr().out
    assert "?[2J?Evil?" in shown and "\x1b" not in shown and "\u202e" not in shown


def test_a_file_that_cannot_be_read_is_named_below_the_table(here, capsys):
    (make_run(here / "runs" / "a") / "result.json").write_text("{")
    assert main(["runs"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "runs/a: result.json: not JSON"


def test_runs_as_json_have_their_settings(here, capsys):
    make_run(here / "runs" / "a", lr=0.5)
    assert main(["runs", "--json", "--best", "1"]) == 0
    (run,) = json.loads(capsys.readouterr().out)
    assert run["options"]["lr"] == 0.5 and run["status"] == "finished"


def test_two_runs_are_told_apart_by_their_settings(here, capsys):
    make_run(here / "a", lr=0.5)
    make_run(here / "b", lr=0.25, seed=1)
    assert main(["runs", "--diff", "a", "b"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        ["A", "a"], ["B", "b"], ["setting", "A", "B"], ["seed", "0", "1"], ["lr", "0.5", "0.25"]
    ]  # fmt: skip
    assert main(["runs", "--diff", "a", "a"]) == 0
    assert capsys.readouterr().out == "no setting differs\n"
    assert main(["runs", "--diff", "a", "b", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["lr"] == {"a": 0.5, "b": 0.25}


def test_a_comparison_says_how_many_seeds_and_what_follows(here, capsys):
    for seed in range(5):
        make_run(here / "a" / str(seed), returns=[480.0 + seed], seed=seed)
        make_run(here / "b" / str(seed), returns=[100.0 + seed], seed=seed, algo="dqn")
    make_run(here / "b" / "gone", status="failed")
    assert main(["compare", "a", "--vs", "b"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "CartPole-v1: return of the final evaluation"
    assert shown[2].split()[:4] == ["A", "ppo", "5", "482.0"]
    assert "left out: b/gone: failed" in shown
    assert shown[-1] == "A is better: the interval of the difference excludes 0"
    assert max(map(len, shown)) <= 80
    assert main(["compare", "a/0", "a/1", "--vs", "b/0", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["enough_seeds"] is False


def test_a_report_is_written_and_its_place_is_printed(here, capsys):
    make_run(here / "a")
    assert main(["report", "a"]) == 0
    assert capsys.readouterr().out == "report.html\n"
    assert main(["report", "a", "--out", "other.html"]) == 0
    assert (here / "other.html").read_text().startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        (["runs"], ["there is no run in", "try: muster train ppo CartPole-v1"]),
        (["runs", "nowhere"], ["there is no run in nowhere"]),
        (["runs", "--bset", "1"], ["no option --bset", "nearest is --best"]),
        (["runs", "--best", "x"], ["--best x is not possible", "a whole number"]),
        (["runs", "--diff", "a"], ["--diff a is not possible", "names with spaces"]),
        (["runs", "--diff", "a", "b"], ["there is no run in a"]),
        (["compare"], ["needs runs", "muster compare runs/a --vs runs/b"]),
        (["compare", "a"], ["needs runs to compare with (--vs)"]),
        (["compare", "a", "--vs", "b"], ["there is no run in a"]),
        (["compare", "a", "b", "--score", "last"], ["--score last", "one of final, best"]),
        (["report"], ["needs a run", "muster report runs/first"]),
        (["report", "a"], ["there is no run in a"]),
        (["report", "a", "--uot", "b"], ["no option --uot", "nearest is --out"]),
        (["watch"], ["muster watch needs a run", "try: muster watch RUN"]),
        (["watch", "a"], ["there is no run in"]),
        (["watch", "a", "b"], ["b belongs to no option"]),
        (["compare", "a", "--vz", "b"], ["no option --vz", "nearest is --vs"]),
    ],
)
def test_a_mistake_gets_three_lines_and_code_2(arguments, lines, here, capsys):
    assert main(arguments) == 2
    shown = capsys.readouterr().err
    assert len(shown.splitlines()) == 3 and shown.startswith("muster: ")
    assert all(line in shown for line in lines), shown


@pytest.mark.parametrize("verb", ["runs", "compare", "report", "watch"])
def test_the_help_fits_80_columns(verb, capsys):
    with pytest.raises(SystemExit):
        main([verb, "--help"])
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80
