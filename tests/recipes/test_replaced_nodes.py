"""A node that died and was replaced is mentioned: on the terminal, in logs, metrics and result."""

import json
import re

import pytest
from faulty import Fault, run

LINE = re.compile(
    r"muster: (node \d(?: \(\w+\))?) was replaced: it was ended by SIGKILL; "
    r"at work again after \d+\.\d\d s"
)


def trained(tmp_path, algo, workers, times, quiet=False, role=None, **options):
    """Train while nodes die so often, and return its result, its metrics and its lines."""
    died = tmp_path / "died"
    died.mkdir(exist_ok=True)
    fault = Fault("step", 20, "kill", role=role, place=str(died), times=times)
    run_dir = tmp_path / f"run-{times}"
    done = run(algo, run_dir, workers, fault, quiet=quiet, **options)
    assert done.returncode == 0, done.stderr
    assert len(list(died.iterdir())) == times, "the fault did not land"
    result = json.loads((run_dir / "result.json").read_text())
    lines = map(json.loads, (run_dir / "metrics.jsonl").read_text().splitlines())
    return result, list(lines), done.stderr.splitlines(), run_dir / "logs"


def test_a_worker_that_was_replaced_is_said_counted_and_logged(tmp_path):
    wanted, metrics, said, _ = trained(tmp_path, "ppo", 2, 0)
    assert wanted["replacements"] == 0
    assert {line["nodes/replaced"] for line in metrics} == {0}
    assert [line for line in said if "replaced" in line] == []

    result, metrics, said, logs = trained(tmp_path, "ppo", 2, 1)
    assert result["replacements"] == 1
    assert metrics[-1]["nodes/replaced"] == 1
    assert result["policy_sha256"] == wanted["policy_sha256"]
    (line,) = [line for line in said if "replaced" in line]
    node = LINE.fullmatch(line)[1]
    assert line in (logs / f"{node.replace(' ', '.')}.log").read_text().splitlines()


@pytest.mark.slow
@pytest.mark.parametrize("role", ["actor", "evaluator"])
def test_so_is_a_node_of_dqn_with_its_role(tmp_path, role):
    result, _, said, _ = trained(tmp_path, "dqn", 3, 1, role=role, env_steps=8000)
    assert result["replacements"] == 1
    (line,) = [line for line in said if "replaced" in line]
    assert f"({role})" in LINE.fullmatch(line)[1]


@pytest.mark.slow
def test_a_quiet_run_has_it_in_its_log_only(tmp_path):
    result, _, said, logs = trained(tmp_path, "ppo", 2, 2, quiet=True)
    assert result["replacements"] == 2
    assert said == []
    logged = "".join(log.read_text() for log in logs.iterdir())
    assert len(LINE.findall(logged)) == 2


def test_a_run_in_one_process_has_no_nodes_to_count(tmp_path):
    result, metrics, _, _ = trained(tmp_path, "dqn", 0, 0)
    assert result["replacements"] == 0
    assert not any("nodes/replaced" in line for line in metrics)
