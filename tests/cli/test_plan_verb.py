"""`muster plan` as a person meets it."""

import json

import pytest

from muster.cli.main import main
from muster.planning.calibrate import network_of, write_costs
from muster.planning.costs import Affine, RunCosts
from muster.recipes.settings import resolve


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Work in a folder with a calibration of PPO."""
    monkeypatch.chdir(tmp_path)
    line = Affine(1e-5, 1e-6)
    network = network_of(resolve("ppo", "CartPole-v1", {}))
    parts = {"env": line, "act": line, "learn": line, "rest": line}
    costs = RunCosts("ppo", "CartPole-v1", "in_step", network, **parts, slots=4)
    write_costs(costs, tmp_path / "costs.json")
    return tmp_path


def test_a_plan_prints_a_table_and_writes_all_of_it(folder, capsys):
    told = ["plan", "ppo", "CartPole-v1", "--calibration", "costs.json", "--workers", "4"]
    assert main([*told, "--json", "plan.json", "--save-calibration", "again.json"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0] == "ppo on CartPole-v1: 8 environments and 4 slots shared by all workers"
    assert [line.split()[0] for line in lines[3:]] == ["workers", "1", "2", "4"]
    written = json.loads((folder / "plan.json").read_text())
    assert [row["workers"] for row in written["rows"]] == [1, 2, 4]
    assert (folder / "again.json").read_bytes() == (folder / "costs.json").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        ([], ["does not say what to plan", "muster plan ppo CartPole-v1"]),
        (["ppo"], ["muster plan ppo does not say which environment"]),
        (["ppoo", "CartPole-v1"], ["no algorithm 'ppoo'", "muster plan ppo CartPole-v1"]),
        (["ppo", "CartPole-v7"], ["No environment 'CartPole-v7'", "muster plan ppo CartPole-v1"]),
        (["ppo", "CartPole-v1", "--machnes", "2"], ["no option --machnes", "--machines"]),
        (["ppo", "CartPole-v1", "--machines", "0"], ["--machines 0 is not possible"]),
        (["ppo", "CartPole-v1", "--machines", "two"], ["it must be a whole number"]),
        (["ppo", "CartPole-v1", "--link-gbps", "-1"], ["--link-gbps -1.0 is not possible"]),
        (["ppo", "CartPole-v1", "--latency-us", "-1"], ["--latency-us -1.0 is not possible"]),
        (["ppo", "CartPole-v1", "--workers", "9"], ["--workers 9 and --slots 4"]),
        (["ppo", "CartPole-v1", "--lr", "-1"], ["--lr -1.0 is not possible"]),
        (["ppo", "CartPole-v1", "--json", "no/such.json"], ["--json 'no/such.json' cannot be"]),
        (["ppo", "CartPole-v1", "--calibration", "none.json"], ["'none.json' cannot be read"]),
        (["ppo", "CartPole-v1", "--calibration", "bad.json"], ["'bad.json' is damaged"]),
        (["dqn", "CartPole-v1", "--calibration", "costs.json"], ["of the algorithm 'ppo'"]),
        (["ppo", "CartPole-v1", "--from-run", "nowhere"], ["nowhere"]),
        (["--from-run", "nowhere"], ["nowhere"]),
        (["a3c", "CartPole-v1", "--learners", "2"], ["--learners 2 is not possible with a3c"]),
    ],
)
def test_a_mistake_gets_three_lines_and_code_2_before_anything_is_measured(
    folder, capsys, arguments, lines
):
    (folder / "bad.json").write_text("{")
    before = set(folder.iterdir())
    assert main(["plan", *arguments]) == 2
    shown = capsys.readouterr().err
    assert len(shown.splitlines()) == 3 and shown.startswith("muster: ")
    assert all(line in shown for line in lines), shown
    assert set(folder.iterdir()) == before


@pytest.mark.parametrize("words", [["--help"], ["dqn", "--help"]])
def test_help_shows_the_options_of_a_plan_before_those_of_the_algorithm(capsys, words):
    with pytest.raises(SystemExit):
        main(["plan", *words])
    shown = capsys.readouterr().out
    assert shown.index("--link-gbps") < shown.index("--lr ")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_plan_measures_here_and_predicts(folder, capsys):
    told = ["plan", "ppo", "CartPole-v1", "--seconds", "1", "--hidden", "16", "--workers", "2"]
    assert main(told) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].startswith("calibrated with 1 worker: ")
    assert [line.split()[0] for line in lines[3:]] == ["workers", "1", "2"]
