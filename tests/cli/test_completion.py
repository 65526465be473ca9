"""Completion scripts: what the Tab key offers, asked of a real bash."""

import shutil
import subprocess

import pytest

from muster.cli.main import VERBS, main
from muster.recipes.algorithms import ALGORITHMS

BASH = shutil.which("bash")
ASK = """
source "$1"; shift
complete -p muster > /dev/null || exit 3
COMP_WORDS=( "$@" ); COMP_CWORD=$(( $# - 1 ))
_muster
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    """The script for bash, as `muster completion bash > file` writes it."""
    path = tmp_path_factory.mktemp("completion") / "muster.bash"
    with pytest.MonkeyPatch.context() as patch:
        lines = []
        patch.setattr("builtins.print", lambda *words, **options: lines.append(str(words[0])))
        assert main(["completion", "bash"]) == 0
    path.write_text("".join(lines))
    return path


@pytest.fixture
def offered(script, tmp_path):
    """Return what bash offers for the last of some words."""
    if BASH is None:
        pytest.skip("there is no bash here")

    def offer(*words):
        done = subprocess.run(
            [BASH, "--norc", "-c", ASK, "bash", str(script), "muster", *words],
            cwd=tmp_path, capture_output=True, text=True, timeout=30,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
        return set(done.stdout.split("\n")) - {""}

    return offer


def test_verbs_algorithms_and_environments_are_offered(offered):
    assert offered("") == set(VERBS)
    assert offered("t") == {"train", "tune"}
    assert offered("train", "") >= set(ALGORITHMS)
    assert offered("train", "imp") == {"impala"}
    assert offered("bench", "sa") == {"sac"}
    assert offered("train", "ppo", "CartPole-v") == {"CartPole-v0", "CartPole-v1"}
    assert offered("doctor", "CartPole-v1") == {"CartPole-v1"}
    assert offered("completion", "") == {"bash", "zsh", "fish"}


def test_options_are_those_of_the_verb_and_of_the_algorithm(offered):
    assert offered("train", "ppo", "CartPole-v1", "--clip") >= {"--clip"}
    assert "--dry-run" in offered("train", "ppo", "CartPole-v1", "--")
    assert offered("train", "dqn", "CartPole-v1", "--clip") == set()
    assert offered("train", "dqn", "CartPole-v1", "--doub") == {"--double"}
    assert offered("train", "dqn", "CartPole-v1", "--no-doub") == {"--no-double"}
    assert offered("train", "ppo", "CartPole-v1", "--lr", "1", "--eval-env-k") == {
        "--eval-env-kwargs"
    }
    assert "--trials" in offered("tune", "ppo", "CartPole-v1", "--tr")
    assert "--episodes" in offered("eval", "run", "--")
    assert "--double" in offered("resume", "run", "--do")


def test_values_of_options_are_offered(offered):
    assert offered("train", "ppo", "CartPole-v1", "--engine", "") == {"local", "ray"}
    assert offered("train", "ppo", "CartPole-v1", "--backend", "g") == {"gymnasium"}
    assert "lstm" in offered("train", "ppo", "CartPole-v1", "--model", "l")
    assert offered("train", "ppo", "CartPole-v1", "--eval-env", "LunarLander-") >= {
        "LunarLander-v3"
    }
    assert offered("export", "run", "--to", "") == {"onnx", "torch-export"}


def test_runs_are_completed_as_files(offered, tmp_path):
    (tmp_path / "runs").mkdir()
    (tmp_path / "my run").mkdir()
    assert offered("eval", "ru") == {"runs"}
    assert offered("resume", "ru") == {"runs"}
    assert offered("play", "my") == {"my run"}
    assert offered("train", "ppo", "CartPole-v1", "--config", "ru") == {"runs"}


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_have_scripts_too(capsys, tmp_path, shell):
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(verb in script for verb in VERBS) and "dry-run" in script
    if shutil.which(shell) is not None:
        (tmp_path / "script").write_text(script)
        done = subprocess.run([shell, "-n", "script"], cwd=tmp_path, timeout=30)
        assert done.returncode == 0


def test_another_shell_is_refused(capsys):
    assert main(["completion", "tcsh"]) == 2
    assert "bash, zsh, fish" in capsys.readouterr().err
    assert main(["completion", "fsh"]) == 2
    assert "try: muster completion fish" in capsys.readouterr().err
    assert main(["completion"]) == 2
    assert "muster completion needs a shell" in capsys.readouterr().err
