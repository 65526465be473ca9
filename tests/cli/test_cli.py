"""The command line as a person meets it: help, typos, exit codes."""

import pytest

from muster.cli.main import VERBS, main


def test_without_arguments_it_says_what_there_is(capsys):
    assert main([]) == 0
    shown = capsys.readouterr().out
    assert all(verb in shown for verb in VERBS) and "muster train dqn CartPole-v1" in shown


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        (["tran"], ["there is no verb 'tran'", "try: muster train"]),
        (["train", "dqnn", "CartPole-v1"], ["no algorithm 'dqnn'", "the nearest is 'dqn'"]),
        (["train", "dqn"], ["does not say which environment", "muster train dqn CartPole-v1"]),
        (["train", "dqn", "CartPole-v1", "--lrr", "1"], ["no option --lrr", "nearest is --lr"]),
        (["train", "dqn", "CartPole-v1", "--lr", "-1"], ["lr=-1.0 is not possible"]),
        (["train", "dqn", "CartPole-v7"], ["No environment 'CartPole-v7'", "'CartPole-v1'"]),
        (["train", "dqn", "Pendulum-v1"], ["DQN needs Discrete actions; got Box"]),
        (["eval", "nowhere"], ["there is no run in"]),
    ],
)
def test_a_mistake_gets_three_lines_code_2_and_leaves_nothing_behind(
    arguments, lines, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    shown = capsys.readouterr().err
    assert len(shown.splitlines()) == 3 and shown.startswith("muster: ")
    assert all(line in shown for line in lines), shown
    assert list(tmp_path.iterdir()) == []


def test_a_value_of_the_wrong_type_ends_with_code_2(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["train", "dqn", "CartPole-v1", "--lr", "abc"])
    assert caught.value.code == 2
    assert "--lr" in capsys.readouterr().err


def test_help_shows_every_option_with_its_default(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["train", "dqn", "CartPole-v1", "--help"])
    assert caught.value.code == 0
    shown = capsys.readouterr().out
    for option in ("--lr", "--env-steps", "--stop-at", "--seed", "--resume", "--hidden"):
        assert option in shown
    assert "0.001" in shown, "the preset's learning rate"


def test_train_eval_play_and_doctor_work_together(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    small = ["--env-steps", "256", "--eval-every", "0", "--eval-episodes", "2", "--quiet"]
    assert main(["train", "dqn", "CartPole-v1", "--run-dir", "run", *small]) == 0
    last_line = capsys.readouterr().out.splitlines()[-1]
    assert last_line == f"muster play {tmp_path / 'run'}"
    assert main(["eval", "run", "--episodes", "2", "--json"]) == 0
    assert '"episodes": 2' in capsys.readouterr().out
    assert main(["play", "run", "--episodes", "1", "--video", "out.mp4"]) == 0
    assert (tmp_path / "out.mp4").stat().st_size > 1000
    assert main(["doctor", "CartPole-v1"]) == 0
    shown = capsys.readouterr().out
    assert "torch" in shown and "restorable         True" in shown
    assert max(map(len, shown.splitlines())) <= 80
