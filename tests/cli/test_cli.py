"""The command line as a person meets it: help, typos, exit codes."""

import pytest

from muster.cli.main import VERBS, main


def test_without_arguments_it_says_what_there_is(capsys):
    assert main([]) == 0
    shown = capsys.readouterr().out
    assert all(verb in shown for verb in VERBS) and "muster train ppo CartPole-v1" in shown


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        (["tran"], ["there is no verb 'tran'", "try: muster train"]),
        (["train", "dqnn", "CartPole-v1"], ["no algorithm 'dqnn'", "the nearest is 'dqn'"]),
        (["train", "dqn"], ["needs an environment", "muster train dqn CartPole-v1"]),
        (["train", "dqn", "CartPole-v1", "--lrr", "1"], ["no option --lrr", "nearest is --lr"]),
        (
            ["train", "dqn", "CartPole-v1", "--lr", "-1"],
            ["--lr -1.0 is not possible", "CartPole-v1 --lr 0.001"],
        ),
        (
            ["train", "dqn", "CartPole-v7"],
            ["No environment 'CartPole-v7'", "try: muster train dqn CartPole-v1"],
        ),
        (["train", "dqn", "Pendulum-v1"], ["DQN needs Discrete actions; got Box"]),
        (["eval", "nowhere"], ["there is no run in"]),
        (["eval"], ["muster eval needs a run", "try: muster eval RUN"]),
        (["eval", "a", "b"], ["b belongs to no option"]),
        (["eval", "a", "--episodes", "0"], ["--episodes 0 is not", "muster eval a --episodes 1"]),
        (["eval", "a", "--epsodes", "1"], ["no option --epsodes", "nearest is --episodes"]),
        (["play", "a", "--seed", "1.5"], ["--seed 1.5 is not possible", "a whole number"]),
        (["play", "a", "--seed", "-1"], ["--seed -1 is not possible"]),
        (["doctor", "CartPole-v1", "x"], ["x belongs to no option"]),
        (["doctor", "CartPole-v7"], ["try: muster doctor CartPole-v1"]),
        (["doctor", "--jsno"], ["there is no option --jsno"]),
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


TRAIN = ["train", "dqn", "CartPole-v1"]


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        (["--lr", "abc"], ["--lr abc is not possible", "it must be a number"]),
        (["--lr=abc"], ["--lr abc is not possible", "it must be a number"]),
        (["--lr", ""], ["--lr '' is not possible", "it must be a number"]),
        (["--lr"], ["--lr has no value", "it must be a number"]),
        (["--lr", "--seed", "1"], ["--lr has no value"]),
        (["--seed", "1.5"], ["--seed 1.5 is not possible", "it must be a whole number"]),
        (["--double", "maybe"], ["maybe belongs to no option", "--double is a switch"]),
        (["--double=maybe"], ["--double maybe is not possible", "it must be a switch"]),
        (["--eps-schedule", "cubic"], ["--eps-schedule cubic", "one of linear, exp"]),
        (["--eps-schedule", "liner"], ["dqn CartPole-v1 --eps-schedule linear"]),
        (["--backend", "gymansium"], ["dqn CartPole-v1 --backend gymnasium"]),
        (["--activation=rellu"], ["dqn CartPole-v1 --activation relu"]),
        (["--hidden", "64,64"], ["whole numbers", "dqn CartPole-v1 --hidden 64 64"]),
        (["--hidden", "(64, 64)"], ["dqn CartPole-v1 --hidden 64 64"]),
        (["--hidden", "64", "wide"], ["--hidden 64 wide is not", "whole numbers"]),
        (["--stop-at", "high"], ["--stop-at high is not possible", "it must be a number"]),
        (["stray"], ["stray belongs to no option"]),
        (["-lr", "1"], ["there is no option -lr", "nearest is --lr"]),
        (["--no-lr"], ["there is no option --no-lr", "nearest is --lr"]),
        (["--no-dubble"], ["there is no option --no-dubble", "nearest is --double"]),
        (["--l\nr", "1"], ["there is no option '--l\\nr'"]),
        (["--" + "x" * 500], ["xxx..."]),
        (["--model", "mpl"], ["there is no model 'mpl'", "--model mlp"]),
        (["--model", "no_such_module:Net"], ["ModuleNotFoundError"]),
        (["--model", "os:nothing"], ["os has no 'nothing'"]),
        (["--model", "os:path.x y"], ["--model os:path.x y is not possible"]),
        (["--model", "nature_cnn"], ["cannot read Box"]),
        (["--device", "cuda"], ["--device cuda is not available", "--device cpu"]),
        (["--config", "nowhere.yaml"], ["'nowhere.yaml' cannot be read", "No such file"]),
    ],
)
def test_a_bad_value_gets_three_lines(arguments, lines, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main([*TRAIN, *arguments]) == 2
    shown = capsys.readouterr().err
    assert len(shown.splitlines()) == 3 and shown.startswith("muster: "), shown
    assert all(line in shown for line in lines), shown
    assert list(tmp_path.iterdir()) == []


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
    assert last_line == "muster play run"
    assert main(["eval", "run", "--episodes", "2", "--json"]) == 0
    assert '"episodes": 2' in capsys.readouterr().out
    assert main(["play", "run", "--episodes", "1", "--video", "out.mp4"]) == 0
    assert (tmp_path / "out.mp4").stat().st_size > 1000
    assert main(["doctor", "CartPole-v1"]) == 0
    shown = capsys.readouterr().out
    assert "torch" in shown and "restorable         True" in shown
    assert max(map(len, shown.splitlines())) <= 80
