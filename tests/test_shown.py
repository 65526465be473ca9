"""How messages show paths and programs."""

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

from muster.installs import install
from muster.shown import program, shown


def test_a_path_in_the_current_folder_is_shown_from_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert shown(tmp_path / "runs" / "first") == "runs/first"
    assert shown(tmp_path) == "."
    assert shown(tmp_path.parent) == str(tmp_path.parent)
    assert shown(f"{tmp_path}-2/run") == f"{tmp_path}-2/run"


def test_without_a_current_folder_a_path_is_shown_whole(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert shown("/elsewhere/run") == "/elsewhere/run"
    os.chdir(tmp_path)


def test_a_program_that_the_shell_finds_is_called_by_its_name():
    assert program("muster") == "muster"


def test_a_program_of_an_environment_that_is_not_active_is_called_by_its_path(
    tmp_path, monkeypatch
):
    for folder in ("env/bin", "usr"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "pip").touch(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "env" / "bin" / "python"))
    for path in ("", str(tmp_path / "usr")):
        monkeypatch.setenv("PATH", path)
        assert program("pip") == "env/bin/pip"
        assert install("ray").startswith("env/bin/pip install ")
    monkeypatch.setenv("PATH", str(tmp_path / "env" / "bin"))
    assert program("pip") == "pip"
    assert program("absent") == "absent"


def test_an_extra_is_installed_from_the_clone_in_which_the_user_is(monkeypatch):
    monkeypatch.chdir(Path(__file__).parent.parent)
    assert install("ray") == 'pip install -c constraints.txt -e ".[ray]"'


def test_an_install_that_is_not_editable_stays_so(monkeypatch):
    url = Path(__file__).parent.parent.as_uri()
    for about, again in (({}, ""), ({"editable": True}, "-e ")):
        origin = SimpleNamespace(
            read_text=lambda _, about=about: json.dumps({"url": url, "dir_info": about})
        )
        monkeypatch.setattr("importlib.metadata.distribution", lambda _, origin=origin: origin)
        assert f'constraints.txt {again}"' in install("ray")
