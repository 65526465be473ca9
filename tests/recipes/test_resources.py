"""`--resources`: who is to have how much of what, as the command line says it."""

import pytest

import muster
from muster.errors import OptionError
from muster.recipes.resources import parse_resources


def test_amounts_are_read_by_role_or_node():
    words = ("learner:num_gpus=1", "actor:num_cpus=2,memory=1e9", "0:num_cpus=0.5", "actor:tpu=1")
    assert parse_resources(words) == {
        "learner": {"num_gpus": 1.0},
        "actor": {"num_cpus": 2.0, "memory": 1e9, "tpu": 1.0},
        0: {"num_cpus": 0.5},
    }
    assert parse_resources(()) == {}


@pytest.mark.parametrize(
    "word",
    ["learner", "learner:", ":num_gpus=1", "learner:num_gpus", "learner:=1", "a:b=-1", "a:b=x"],
)
def test_what_cannot_be_read_is_refused_with_an_example(word):
    with pytest.raises(OptionError, match="is not possible") as refused:
        parse_resources((word,))
    assert "--resources learner:num_gpus=1" in str(refused.value)


def test_without_a_cluster_they_are_of_no_use(tmp_path):
    with pytest.raises(OptionError, match="has no effect with engine=local"):
        muster.train(
            "dqn", "CartPole-v1", resources=("learner:num_gpus=1",), run_dir=str(tmp_path / "run")
        )
    assert not (tmp_path / "run").exists()


@pytest.mark.timeout(300)
def test_nodes_are_given_what_the_command_says(tmp_path):
    """A GPU that the cluster has not got is refused with need and supply."""
    pytest.importorskip("ray")
    with pytest.raises(OptionError, match="3 nodes need 3 CPUs and 1 GPU"):
        muster.train(
            "dqn",
            "CartPole-v1",
            workers=3,
            engine="ray",
            resources=("learner:num_gpus=1",),
            run_dir=str(tmp_path / "run"),
            quiet=True,
        )
