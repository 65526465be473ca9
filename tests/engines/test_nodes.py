"""CONTRACT, sections Parallel and Labels: which nodes there are, and what each knows of itself."""

import finish_programs
import node_programs
import pytest

from muster import NodeError, OptionError, Parallel, Task

pytestmark = pytest.mark.timeout(600)

ROLES = {"learner": 1, "evaluator": 1, "actor": 2}


def test_results_are_in_the_order_of_nodes_and_not_of_time(run, tmp_path):
    assert run(node_programs.returns_after_the_next_one, tmp_path, 3, n=3) == [0, 1, 2]


def test_arguments_reach_every_node(run):
    got = run(node_programs.echo, 1, (2, 3), key=[4], other=None)
    assert got == [(node, (1, (2, 3)), {"key": [4], "other": None}) for node in (0, 1)]


def test_one_node_is_a_parallel_run_too(run):
    (got,) = run(node_programs.describe, n=1)
    assert got == {
        "labels": {"distributed", "node.0"},
        "peers": [],
        "node_id": 0,
        "is_active": True,
    }


def test_one_node_can_share_emit_and_finish(run):
    assert run(finish_programs.finishes, 0, "ctx.finish", n=1)[0]["exit"] == 1


@pytest.fixture(scope="module")
def with_roles(run):
    return run(node_programs.describe, n=4, runner={"roles": ROLES})


def test_roles_number_the_nodes_in_their_order(with_roles):
    roles = [{name for name in node["labels"] if "role." in name} for node in with_roles]
    assert roles == [{"role.learner"}, {"role.evaluator"}, {"role.actor"}, {"role.actor"}]


def test_every_node_has_its_own_node_label_and_distributed(with_roles):
    for node_id, node in enumerate(with_roles):
        assert {name for name in node["labels"] if "node." in name} == {f"node.{node_id}"}
        assert "distributed" in node["labels"] and "standalone" not in node["labels"]


def test_without_roles_there_is_no_role_label(run):
    assert not any("role." in str(node["labels"]) for node in run(node_programs.describe))


def test_roles_that_do_not_add_up_to_the_number_of_workers_are_refused(engine):
    with pytest.raises(OptionError) as caught:
        Parallel.runner(3, engine=engine, roles=ROLES)
    assert "3" in str(caught.value) and "4" in str(caught.value)
    assert len(str(caught.value).splitlines()) == 3


def test_labels_in_a_list_are_for_all_nodes(run):
    got = run(node_programs.describe, runner={"labels": ["gpu", "big"]})
    assert all({"gpu", "big"} <= node["labels"] for node in got)


def test_labels_in_a_dict_are_for_one_node_each(run):
    got = run(node_programs.describe, n=3, runner={"labels": {0: ["gpu"], 2: ["disk", "far"]}})
    extra = [node["labels"] - {"distributed", f"node.{node['node_id']}"} for node in got]
    assert extra == [{"gpu"}, set(), {"disk", "far"}]


def test_labels_of_the_task_and_of_the_environment_are_there_too(run, monkeypatch):
    monkeypatch.setenv("MUSTER_LABELS", "cheap, spot")
    got = run(node_programs.describe, ["own"])
    assert all({"own", "cheap", "spot"} <= node["labels"] for node in got)


@pytest.mark.parametrize(
    ("topology", "peers"),
    [
        ("star", [[1, 2], [0], [0]]),
        ("mesh", [[1, 2], [0, 2], [0, 1]]),
        ("alone", [[], [], []]),
    ],
)
def test_the_router_knows_the_neighbours(run, topology, peers):
    got = run(node_programs.describe, n=3, runner={"topology": topology})
    assert [node["peers"] for node in got] == peers
    assert [node["node_id"] for node in got] == [0, 1, 2]
    assert all(node["is_active"] for node in got)


def test_star_is_the_default(run):
    assert [node["peers"] for node in run(node_programs.describe, n=3)] == [[1, 2], [0], [0]]


def test_without_a_runner_the_router_is_not_active():
    router = Task().router
    assert (router.is_active, router.node_id, list(router.peers)) == (False, 0, [])
    assert "standalone" in router.labels and "distributed" not in router.labels


def test_filter_labels_is_any_of_with_globs(run):
    filters = {
        ("role.learner",): [0],
        ("role.actor",): [2, 3],
        ("role.learner", "node.3"): [0, 3],
        ("node.*",): [0, 1, 2, 3],
        ("role.*r", "nobody"): [0, 1, 2, 3],
        ("node.[12]",): [1, 2],
        ("distributed", "standalone"): [0, 1, 2, 3],
    }
    ran = run(node_programs.filtered, list(filters), n=4, runner={"roles": ROLES})
    for labels, nodes in filters.items():
        assert [n for n in range(4) if ",".join(labels) in ran[n]] == nodes, labels


def test_a_middleware_that_no_node_would_run_is_an_error_before_any_loop(run, tmp_path):
    with pytest.raises(NodeError) as caught:
        run(node_programs.for_nobody, tmp_path, n=4, runner={"roles": ROLES})
    assert caught.value.cause == "raised"
    assert list(tmp_path.iterdir()) == [], "a loop had begun"
    for label in ("role.critic", "role.learner", "role.evaluator", "role.actor"):
        assert label in caught.value.remote_traceback, f"{label} is not named"


def test_a_label_that_only_another_nodes_task_has_is_enough(run):
    assert run(node_programs.for_a_label_of_one_task) == [[], [1]]
