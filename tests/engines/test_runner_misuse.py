"""What cannot work is refused in three lines, before any process starts."""

import os
import subprocess
import sys
import textwrap
import threading
import time

import node_programs
import pytest

from muster import NodeError, OptionError, Parallel

pytestmark = pytest.mark.timeout(600)


def refused(directory, call):
    with pytest.raises(OptionError) as caught:
        call()
    lines = str(caught.value).splitlines()
    assert [line[:6] for line in lines[1:]] == ["  why:", "  try:"], lines
    assert list(directory.iterdir()) == [], "a node ran"
    return lines


def test_a_lambda_is_refused_as_main(engine, tmp_path):
    lines = refused(tmp_path, lambda: Parallel.runner(2, engine=engine)(lambda: 1))
    assert "lambda" in lines[0] and "def main" in lines[2]


def test_an_inner_function_is_refused_as_main(engine, tmp_path):
    def inner(): ...

    lines = refused(tmp_path, lambda: Parallel.runner(2, engine=engine)(inner))
    assert "inner" in lines[0]


@pytest.mark.parametrize("make", [threading.Lock, lambda: (x for x in ())])
def test_an_argument_that_cannot_be_sent_is_refused(engine, tmp_path, make):
    start = Parallel.runner(2, engine=engine)
    refused(tmp_path, lambda: start(node_programs.touches, tmp_path, make()))
    lines = refused(tmp_path, lambda: start(node_programs.touches, tmp_path, argument=make()))
    assert "argument" in lines[0]


def test_what_was_called_already_is_refused(engine, tmp_path):
    refused(tmp_path, lambda: Parallel.runner(2, engine=engine)(None))


@pytest.mark.parametrize("number", [0, -1, 1.5, "2", True, None])
def test_an_odd_number_of_nodes_is_refused(engine, tmp_path, number):
    lines = refused(tmp_path, lambda: Parallel.runner(number, engine=engine))
    assert repr(number) in lines[0]


def test_an_unknown_topology_gets_the_nearest_match(engine, tmp_path):
    lines = refused(tmp_path, lambda: Parallel.runner(2, topology="mehs", engine=engine))
    assert "mehs" in lines[0] and "mesh" in lines[2]


def test_an_unknown_engine_gets_the_nearest_match(tmp_path):
    lines = refused(tmp_path, lambda: Parallel.runner(2, engine="locale"))
    assert "locale" in lines[0] and "local" in lines[2]


def test_an_unknown_role_in_on_failure_is_refused_with_those_there_are(engine, tmp_path):
    roles = {"learner": 1, "actor": 1}
    lines = refused(
        tmp_path,
        lambda: Parallel.runner(2, engine=engine, roles=roles, on_failure={"aktor": "restart"}),
    )
    assert "aktor" in lines[0] and "actor" in lines[1] and "learner" in lines[1]


@pytest.mark.parametrize(("who", "said"), [("lerner", "lerner"), (2, "2"), ([], "[]")])
def test_a_signal_for_nobody_is_refused(engine, tmp_path, who, said):
    roles = {"learner": 1, "actor": 1}
    lines = refused(tmp_path, lambda: Parallel.runner(engine=engine, roles=roles, on_signal=who))
    assert said in lines[0]


def test_an_unknown_policy_in_on_failure_is_refused(engine, tmp_path):
    lines = refused(tmp_path, lambda: Parallel.runner(2, engine=engine, on_failure="restrat"))
    assert "restart" in lines[2]


def test_a_runner_on_a_node_is_refused(engine, run):
    with pytest.raises(NodeError) as caught:
        run(node_programs.starts_nodes_on_a_node, engine)
    assert caught.value.cause == "raised"
    assert "why:" in caught.value.remote_traceback and "try:" in caught.value.remote_traceback


UNGUARDED = {
    "called at the top": """
        from muster import Parallel
        def main(): return 1
        print(Parallel.runner(2, engine="{engine}")(main))
        """,
    "called in a function": """
        from muster import Parallel
        def main(): return 1
        def go(): return Parallel.runner(2, engine="{engine}")(main)
        print(go())
        """,
    "main of another file": """
        from muster import Parallel
        from node_programs import echo
        print(Parallel.runner(2, engine="{engine}")(echo))
        """,
}


@pytest.mark.parametrize("kind", UNGUARDED)
def test_a_program_without_a_main_guard_is_told_so_and_ends(engine, tmp_path, kind):
    if engine == "ray" and kind != "called at the top":
        pytest.skip("nodes on Ray are sent the program and do not import its file: it runs")
    script = tmp_path / "unguarded.py"
    script.write_text(textwrap.dedent(UNGUARDED[kind].format(engine=engine)))
    path = os.path.dirname(node_programs.__file__)
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, script],
        capture_output=True,
        text=True,
        timeout=40,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert done.returncode != 0, done.stdout
    assert 'if __name__ == "__main__":' in done.stderr
    assert time.monotonic() - started < 15.0
