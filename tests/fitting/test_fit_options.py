"""Options of `muster fit`: each changes something or is refused; augmentation; networks."""

import dataclasses
import json

import numpy as np
import pytest
import torch

import muster
from muster.errors import OptionError
from muster.fitting import FitOptions, load_data
from muster.fitting.job import make_augmentation, make_network
from muster.fitting.options import OF_CLONES
from muster.fitting.schedule import learning_rate

pytestmark = pytest.mark.timeout(120)


CHANGES = {
    "batch_size": 32,
    "slots": 2,
    "optimizer": "adam",
    "lr": 0.02,
    "momentum": 0.5,
    "weight_decay": 0.01,
    "schedule": "constant",
    "horizon": 5,
    "warmup": 1.0,
    "augment": "none",
    "padding": 2,
    "norm": "group",
    "seed": 1,
}


@pytest.fixture(scope="module")
def as_it_is(small, tmp_path_factory):
    def fitted(**changes):
        options = {"epochs": 1, "batch_size": 16, "lr": 0.05, "padding": 1, "horizon": 2}
        run = tmp_path_factory.mktemp("as_it_is") / "run"
        model = changes.pop("model", "mlp")  # which is quick; a norm is of a residual network
        return muster.fit(model, small, quiet=True, run_dir=run, **{**options, **changes})

    fitted.usual = fitted()
    return fitted


@pytest.mark.parametrize("name", CHANGES)
def test_an_option_changes_the_network(name, as_it_is):
    if name == "norm":
        parameters = {as_it_is(model="resnet8", norm=each).parameters for each in ("batch", "none")}
        assert len(parameters) == 2
        return
    if name == "slots":  # they are what batch norm is over
        usual, other = (as_it_is(model="resnet8", slots=each) for each in (4, 2))
    else:
        usual, other = as_it_is.usual, as_it_is(**{name: CHANGES[name]})
    assert usual.model_sha256 != other.model_sha256


def test_steps_drop_at_the_epochs_that_are_named():
    options = FitOptions(lr=1.0, schedule="step", drop_at=(2, 4), drop_by=0.5, warmup=1)
    rate = learning_rate(options)
    assert [rate(each) for each in (0.5, 1, 2, 4, 9)] == [0.5, 1, 0.5, 0.25, 0.25]
    halves = learning_rate(FitOptions(lr=1.0, schedule="step", epochs=8))
    assert [halves(each) for each in (3.9, 4, 6)] == pytest.approx([1, 0.1, 0.01])
    assert learning_rate(FitOptions(epochs=8))(8) == pytest.approx(0)


def test_options_of_the_command_do_what_they_say(as_it_is):
    assert as_it_is(epochs=50, stop_at=0.2).stopped_by == "target"
    assert as_it_is(epochs=50, seconds=0.01).stopped_by == "time"
    seldom = as_it_is(epochs=3, eval_every=2, checkpoint_every=0)
    lines = (seldom.run_dir / "metrics.jsonl").read_text().splitlines()
    assert ["eval/loss" in json.loads(line) for line in lines] == [False, True, True]
    saved = (seldom.run_dir / "checkpoints").glob("step-*")
    assert [each.name for each in saved] == ["step-225"]


def test_every_option_is_tried_here():
    elsewhere = {
        *("data", "epochs", "replicas", "drop_at", "drop_by", "split", "eval_every", "stop_at"),
        *("checkpoint_every", "seconds", "run_dir", "resume", "quiet"),
        *OF_CLONES,  # tests/fitting/test_cloning.py
    }
    assert {each.name for each in dataclasses.fields(FitOptions)} == {*CHANGES, *elsewhere}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 0}, "epochs=0 is not possible"),
        ({"replicas": 5}, "a replica computes at least one slot"),
        ({"batch_size": 4}, "a slot has two samples or more"),
        ({"drop_at": (3,)}, "contradict each other"),
        ({"norm": "layer"}, "norm='layer' is not possible"),
        ({"epoch": 3}, "the nearest is 'epochs'"),
        ({"learning_rate": 0.1}, "the nearest is 'lr'"),
        ({"data": None}, "needs data"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_is_made(quick, options, message):
    with pytest.raises(OptionError, match=message):
        muster.fit("mlp", **{**quick, **options})
    assert not quick["run_dir"].exists()


# ---- augmentation


def test_what_is_done_to_a_sample_depends_on_seed_epoch_and_sample_alone(small):
    dataset = load_data(small)
    change = make_augmentation(dataset, FitOptions(augment="both", padding=2))
    images = dataset.x_train
    all_of_them = change(images, range(75), epoch=3)
    some = [40, 3, 17]
    assert np.array_equal(change(images[some], some, epoch=3), all_of_them[some])
    assert not np.array_equal(change(images, range(75), epoch=4), all_of_them)
    other = make_augmentation(dataset, FitOptions(augment="both", padding=2, seed=1))
    assert not np.array_equal(other(images, range(75), epoch=3), all_of_them)


def test_a_crop_shifts_within_a_black_border_and_a_flip_mirrors(small):
    dataset = load_data(small)
    images = dataset.x_train[:8]
    mirrored = make_augmentation(dataset, FitOptions(augment="flip"))(images, range(8), epoch=0)
    same = [np.array_equal(a, b) for a, b in zip(mirrored, images, strict=True)]
    turned = [np.array_equal(a, b[:, ::-1]) for a, b in zip(mirrored, images, strict=True)]
    assert any(same) and any(turned) and np.logical_xor(same, turned).all()
    crop = make_augmentation(dataset, FitOptions(augment="crop", padding=1))(images, range(8), 0)
    for image, made in zip(images, crop, strict=True):
        around = np.pad(image, ((1, 1), (1, 1), (0, 0)))
        places = [around[y : y + 8, x : x + 8] for y in range(3) for x in range(3)]
        assert any(np.array_equal(made, each) for each in places)


def test_digits_are_not_changed_unless_it_is_asked_for():
    assert not make_augmentation(load_data("digits"), FitOptions())
    assert make_augmentation(load_data("digits"), FitOptions(augment="crop"))


# ---- networks


def test_samples_are_standardised_by_the_training_set(small):
    dataset = load_data(small)
    classifier = make_network("mlp", dataset, FitOptions())
    made = classifier.module.standardize(torch.from_numpy(dataset.x_train.copy()))
    assert float(made.mean()) == pytest.approx(0, abs=1e-5)
    assert float(made.std(unbiased=False)) == pytest.approx(1, abs=1e-5)


def test_vectors_are_learnt_by_an_mlp_and_no_image_network_reads_them(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(64, 3)).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.int64)
    np.savez(tmp_path / "v.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    options = {"quiet": True, "batch_size": 16, "optimizer": "adam", "lr": 0.01}
    done = muster.fit("mlp", tmp_path / "v.npz", epochs=5, run_dir=tmp_path / "a", **options)
    assert done.test_accuracy > 0.9
    with pytest.raises(muster.MusterError, match="'resnet8' cannot read"):
        muster.fit("resnet8", tmp_path / "v.npz", **options, run_dir=tmp_path / "b")
    assert not (tmp_path / "b").exists()


class Tiny(torch.nn.Module):
    """A network of a user's own, with batch norm in it."""

    def __init__(self, space, classes):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Flatten(), torch.nn.Linear(64, 8), torch.nn.BatchNorm1d(8),
            torch.nn.ReLU(), torch.nn.Linear(8, classes),
        )  # fmt: skip

    def forward(self, x):
        return self.layers(x)


@pytest.mark.slow
def test_a_network_of_ones_own_is_fitted_by_several_replicas_too(quick, tmp_path):
    one = muster.fit(Tiny, **quick)
    two = muster.fit(Tiny, **{**quick, "replicas": 2, "run_dir": tmp_path / "two"})
    assert one.model_sha256 == two.model_sha256


def test_a_network_that_cannot_be_sent_to_replicas_is_named(quick):
    import threading

    lock = threading.Lock()

    def held(space, classes):
        assert lock is not None
        return Tiny(space, classes)

    with pytest.raises(OptionError, match=r"cannot be sent(.|\n)*try: replicas=1"):
        muster.fit(held, **{**quick, "replicas": 2})
    assert not quick["run_dir"].exists()


def test_a_run_is_resumed_from_another_folder(quick, small, monkeypatch, tmp_path):
    monkeypatch.chdir(small.parent)
    muster.fit("mlp", **{**quick, "data": small.name, "epochs": 1})
    monkeypatch.chdir(tmp_path)
    assert muster.fit(run_dir="run", resume=True, epochs=2, quiet=True).train_iter == 10


def test_a_network_with_noise_of_its_own_is_refused(quick):
    def noisy(space, classes):
        return torch.nn.Sequential(
            torch.nn.Flatten(), torch.nn.Dropout(0.5), torch.nn.Linear(64, classes)
        )

    with pytest.raises(muster.MusterError, match="Dropout"):
        muster.fit(noisy, **quick)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_fit_that_diverges_ends_with_the_update_named(quick):
    with pytest.raises(muster.MusterError, match=r"the gradient of update \d+ is"):
        muster.fit("mlp", **{**quick, "lr": 1000.0, "epochs": 50, "schedule": "constant"})
