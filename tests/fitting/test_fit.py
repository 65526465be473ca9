"""`muster fit`: the same network for any number of replicas, exact gradients, exact resumes."""

import dataclasses
import json
import shutil

import numpy as np
import pytest
import torch
from torch.nn import functional

import muster
from muster.errors import OptionError
from muster.fitting import FitOptions, load_classifier, load_data
from muster.fitting.batches import BatchPlan, share_of
from muster.fitting.job import make_augmentation, make_classifier, make_plan
from muster.fitting.schedule import learning_rate
from muster.nets.flat import add_rows
from muster.nets.threads import one_torch_thread

pytestmark = pytest.mark.timeout(120)


def lines_of(run):
    found = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for line in found:
        del line["seconds"]
        line.pop("nodes/replaced", None)
    return found


@pytest.fixture(scope="module")
def by_replicas(small, tmp_path_factory):
    """Return two epochs of a residual network with batch norm, on 1, 2 and 4 replicas."""
    place = tmp_path_factory.mktemp("runs")
    common = {"epochs": 2, "batch_size": 16, "lr": 0.05, "padding": 1, "quiet": True}
    return {
        replicas: muster.fit(
            "resnet8", small, replicas=replicas, run_dir=place / str(replicas), **common
        )
        for replicas in (1, 2, 4)
    }


# ---- T2: replicas


def test_any_number_of_replicas_comes_to_the_same_network_and_metrics(by_replicas):
    one, *others = by_replicas.values()
    for other in others:
        assert other.model_sha256 == one.model_sha256
        assert (other.test_accuracy, other.test_loss) == (one.test_accuracy, one.test_loss)
        assert lines_of(other.run_dir) == lines_of(one.run_dir)


def test_every_test_sample_counts_once_and_every_loss_is_reported_once(by_replicas):
    for result in by_replicas.values():
        assert result.test_samples == 300
        assert result.samples == 150 and result.train_iter == 10
        lines = lines_of(result.run_dir)
        assert [line["epoch"] for line in lines] == [1, 2]
        assert 0 < lines[0]["train/loss"] < 3, "a loss that is a mean, not a sum over replicas"


def test_it_learns(by_replicas):
    assert by_replicas[1].test_accuracy > 0.5


def slots_gradient(classifier, dataset, plan, rows):
    """Return the gradient of a batch as the sum of its slots', and what each of them counted."""
    size = classifier.weights.vector.size
    grads, stats = np.zeros((plan.slots, size), np.float32), np.zeros((plan.slots, 3))
    norms = np.zeros((plan.slots, classifier.statistics.size), np.float32)
    total = np.zeros(size, np.float32)
    for slot, share in enumerate(plan.shares(len(rows))):
        mine = rows[share]
        classifier.gradient(
            dataset.x_train[mine],
            dataset.y_train[mine],
            len(rows),
            grads[slot],
            stats[slot],
            norms[slot],
        )
    add_rows(grads, total)
    return total, stats, norms


@pytest.mark.parametrize("rows", [16, 11, 3, 2])
@pytest.mark.parametrize("norm", ["group", "none"])
def test_the_sum_of_slots_is_the_gradient_of_the_whole_batch_by_plain_autograd(small, rows, norm):
    options = FitOptions(batch_size=16, norm=norm)
    dataset = load_data(small)
    classifier = make_classifier("resnet8", dataset, options)
    plan = make_plan(dataset, options)
    chosen = plan.order(0)[:rows]
    with one_torch_thread():
        total, stats, _ = slots_gradient(classifier, dataset, plan, chosen)
        classifier.module.zero_grad()
        outputs = classifier.module(torch.from_numpy(dataset.x_train[chosen]))
        loss = functional.cross_entropy(outputs, torch.from_numpy(dataset.y_train[chosen]))
        loss.backward()
    plain = torch.cat([each.grad.reshape(-1) for each in classifier.module.parameters()])
    assert np.abs(total - plain.numpy()).max() < 1e-5
    assert stats.sum(0)[0] / rows == pytest.approx(loss.item(), rel=1e-5)
    assert stats.sum(0)[2] == rows


def test_batch_norm_is_that_of_a_slot_and_its_averages_are_weighted_by_samples(small):
    options = FitOptions(batch_size=16)
    dataset = load_data(small)
    classifier = make_classifier("resnet8", dataset, options)
    plan = make_plan(dataset, options)
    rows = plan.order(0)[:11]
    first = next(each for each in classifier.module.modules() if hasattr(each, "running_mean"))
    seen = []
    first.register_forward_pre_hook(lambda part, given: seen.append(given[0].detach()))
    before = classifier.statistics.running.copy()
    with one_torch_thread():
        total, stats, norms = slots_gradient(classifier, dataset, plan, rows)
    samples = stats[:, 2]
    assert samples.tolist() == [2, 3, 3, 3]
    means = np.stack([each.mean((0, 2, 3)).numpy() for each in seen])
    wanted = 0.1 * (means * samples[:, None]).sum(0) / 11
    classifier.step(total, norms, samples, lr=0.1)
    assert np.allclose(classifier.statistics.running[:16], 0.9 * before[:16] + wanted, atol=1e-6)


def test_batches_cover_every_sample_of_an_epoch_once():
    for samples, size, slots in ((75, 16, 4), (65, 16, 4), (17, 16, 3), (5, 64, 4), (64, 16, 8)):
        plan = BatchPlan(samples, size, slots, seed=0)
        seen = []
        for batch in range(plan.batches):
            rows = plan.order(3)[plan.span(batch).start : plan.span(batch).stop]
            shares = [rows[share] for share in plan.shares(len(rows))]
            assert len(shares) == slots and len(rows) >= 2
            assert all(len(share) != 1 for share in shares)
            seen += np.concatenate(shares).tolist()
        assert sorted(seen) == list(range(samples))
        assert plan.samples_before(plan.batches) == samples
        for members in (1, 2, 3):
            shared = [slot for k in range(members) for slot in share_of(k, members, slots)]
            assert shared == list(range(slots))


# ---- T3: files


def test_a_network_trained_by_two_replicas_gives_the_same_logits_wherever_it_is_loaded(
    by_replicas, small, tmp_path
):
    dataset, two = load_data(small), by_replicas[2]
    wanted = two.classifier.logits(dataset.x_test)
    last = load_classifier(two.run_dir / "checkpoints" / "step-150")
    assert np.array_equal(last.logits(dataset.x_test), wanted)
    assert (wanted.argmax(1) == dataset.y_test).mean() == two.test_accuracy
    shutil.copytree(two.run_dir, tmp_path / "run")
    again = muster.fit(run_dir=tmp_path / "run", resume=True, quiet=True)
    assert again.model_sha256 == two.model_sha256
    assert again.test_accuracy == two.test_accuracy
    assert np.array_equal(again.classifier.logits(dataset.x_test), wanted)


@pytest.mark.slow
def test_a_network_trained_by_two_replicas_is_trained_on_by_any_number(by_replicas, tmp_path):
    two = by_replicas[2]
    trained_on = set()
    for replicas in (1, 2, 3):
        shutil.copytree(two.run_dir, run := tmp_path / str(replicas))
        on = muster.fit(run_dir=run, resume=True, replicas=replicas, epochs=3, quiet=True)
        assert on.train_iter == 15
        trained_on.add(on.model_sha256)
    assert len(trained_on) == 1


def test_a_damaged_or_foreign_checkpoint_is_named(by_replicas, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(by_replicas[1].run_dir, run)
    file = run / "checkpoints" / "best"
    (weights,) = file.glob("step-*/policy.safetensors")
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    with pytest.raises(muster.MusterError, match=r"policy\.safetensors"):
        load_classifier(run)
    policy = muster.train(
        "ppo", "CartPole-v1", env_steps=64, rollout=8, eval_episodes=1, workers=0, quiet=True,
        run_dir=tmp_path / "ppo",
    )  # fmt: skip
    with pytest.raises(muster.MusterError, match="no network of muster fit"):
        load_classifier(policy.run_dir)
    with pytest.raises(muster.MusterError, match="no run of muster fit"):
        muster.fit(run_dir=policy.run_dir, resume=True)


# ---- resume


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_one_epoch_and_another_after_a_resume_are_two_epochs_to_the_bit(quick, tmp_path, optimizer):
    common = {**quick, "optimizer": optimizer, "lr": 0.01, "horizon": 2}
    whole = muster.fit("resnet8", **{**common, "run_dir": tmp_path / "whole"})
    muster.fit("resnet8", **{**common, "epochs": 1})
    halves = muster.fit(run_dir=quick["run_dir"], resume=True, epochs=2, quiet=True)
    assert halves.model_sha256 == whole.model_sha256
    assert lines_of(halves.run_dir) == lines_of(whole.run_dir)
    assert halves.best_test_accuracy == whole.best_test_accuracy


def test_a_run_stopped_within_an_epoch_goes_on_as_if_it_had_not_been(quick, tmp_path, monkeypatch):
    from muster.fitting.program import Fitting

    whole = muster.fit("resnet8", **{**quick, "run_dir": tmp_path / "whole"})
    loops = iter(range(100))
    monkeypatch.setattr(Fitting, "_is_over", lambda self: next(loops) == 2)
    stopped = muster.fit("resnet8", **quick)
    assert (stopped.train_iter, stopped.stopped_by) == (3, "time")
    assert stopped.test_accuracy is None
    monkeypatch.undo()
    done = muster.fit(run_dir=quick["run_dir"], resume=True, quiet=True)
    assert done.model_sha256 == whole.model_sha256
    assert lines_of(done.run_dir) == lines_of(whole.run_dir)


def test_what_makes_a_run_what_it_is_cannot_change(quick, small, tmp_path):
    muster.fit("mlp", **{**quick, "epochs": 1})
    run = quick["run_dir"]
    for name, value in (("seed", 1), ("batch_size", 32), ("slots", 2), ("optimizer", "adam")):
        with pytest.raises(OptionError, match=f"{name}=.* is not possible"):
            muster.fit(run_dir=run, resume=True, **{name: value})
    with pytest.raises(OptionError, match="is of the model 'mlp'"):
        muster.fit("resnet8", run_dir=run, resume=True)
    other = tmp_path / "other.npz"
    arrays = dict(np.load(small))
    arrays["x_train"] = arrays["x_train"][::-1]
    np.savez(other, **arrays)
    with pytest.raises(muster.MusterError, match="have changed"):
        muster.fit(run_dir=run, resume=True, data=other, epochs=3)
    moved = shutil.copy(small, tmp_path / "bars.npz")  # the same data elsewhere
    assert muster.fit(run_dir=run, resume=True, data=moved, epochs=2, quiet=True).train_iter == 10


# ---- T5: every option changes something, or is refused

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
    assert ["eval/loss" in line for line in lines_of(seldom.run_dir)] == [False, True, True]
    saved = (seldom.run_dir / "checkpoints").glob("step-*")
    assert [each.name for each in saved] == ["step-225"]


def test_every_option_is_tried_here():
    elsewhere = {
        *("data", "epochs", "replicas", "drop_at", "drop_by", "split", "eval_every", "stop_at"),
        *("checkpoint_every", "seconds", "run_dir", "resume", "quiet"),
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
        ({"data": None}, "does not say which data"),
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
    classifier = make_classifier("mlp", dataset, FitOptions())
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
