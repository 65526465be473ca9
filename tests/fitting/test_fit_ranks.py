"""`muster fit` as ranks that join: the same network, and one run directory."""

import json

import pytest
from rank_processes import Ranks, free_address
from small_data import drawn_images

import muster

np = pytest.importorskip("numpy")
pytestmark = pytest.mark.timeout(300)
COMMON = {"epochs": 2, "batch_size": 16, "augment": "none", "quiet": True}
OPTIONS = ("--epochs", 2, "--batch-size", 16, "--augment", "none", "--quiet")


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    ranks = Ranks(tmp_path_factory.mktemp("ranks"))
    yield ranks
    ranks.close()


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    file = tmp_path_factory.mktemp("data") / "small.npz"
    x, y = drawn_images(100)  # the last batch of an epoch is smaller than the others
    np.savez(file, x_train=x[:70], y_train=y[:70], x_test=x[70:], y_test=y[70:])
    return file


@pytest.fixture(scope="module")
def alone(data, tmp_path_factory):
    return muster.fit("mlp", data, run_dir=tmp_path_factory.mktemp("alone") / "run", **COMMON)


def result(run):
    return json.loads((run / "result.json").read_text())


@pytest.mark.parametrize("world", [2, *(pytest.param(n, marks=pytest.mark.slow) for n in (3, 4))])
def test_any_number_of_ranks_comes_to_the_same_network(ranks, alone, data, tmp_path, world):
    run = tmp_path / "run"
    started = ranks.run(world, "fit", "mlp", "--data", data, *OPTIONS, "--run-dir", run)
    found = result(run)
    assert found["model_sha256"] == alone.model_sha256
    assert found["test_accuracy"] == alone.test_accuracy
    assert found["test_samples"] == 30, "every sample counts once"
    assert found["replicas"] == world
    assert all(f"model {alone.model_sha256[:12]}" in each.out for each in started)


def test_a_run_resumes_with_ranks_that_have_no_copy_of_it(ranks, data, tmp_path):
    whole = muster.fit("mlp", data, run_dir=tmp_path / "whole", **{**COMMON, "epochs": 4})
    half = {**COMMON, "horizon": 4}
    muster.fit("mlp", data, run_dir=tmp_path / "half", **half)
    address = free_address()
    both = [
        ranks.start(0, 2, "resume", tmp_path / "half", "--epochs", 4, "--quiet", address=address),
        ranks.start(1, 2, "resume", "--epochs", 4, "--quiet", address=address),
    ]
    assert [each.wait() for each in both] == [0, 0], [each.err for each in both]
    assert result(tmp_path / "half")["model_sha256"] == whole.model_sha256


def test_other_data_are_an_error_on_every_rank(ranks, data, tmp_path):
    x, y = drawn_images(96, seed=1)
    other = tmp_path / "other.npz"
    np.savez(other, x_train=x[:64], y_train=y[:64], x_test=x[64:], y_test=y[64:])
    address = free_address()
    both = [
        ranks.start(rank, 2, "fit", "mlp", "--data", file, *OPTIONS, address=address)
        for rank, file in enumerate((data, other))
    ]
    assert [each.wait() for each in both] == [2, 2]
    assert all("data_sha256" in each.err for each in both)


@pytest.mark.slow
def test_a_run_that_has_done_all_its_epochs_is_only_completed(ranks, alone, data, tmp_path):
    run = tmp_path / "run"
    ranks.run(2, "fit", "mlp", "--data", data, *OPTIONS, "--run-dir", run)
    (run / "result.json").unlink()
    both = ranks.run(2, "resume", run, "--quiet")
    assert result(run)["model_sha256"] == alone.model_sha256
    assert f"model {alone.model_sha256[:12]}" in both[1].out
