"""`muster fit`: the same network for any number of replicas, exact gradients, exact resumes."""

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
from muster.fitting.job import make_network, make_plan
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
    classifier = make_network("resnet8", dataset, options)
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
    classifier = make_network("resnet8", dataset, options)
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
    with pytest.raises(muster.MusterError, match="not a network of muster fit"):
        load_classifier(policy.run_dir)
    with pytest.raises(muster.MusterError, match="not a run of muster fit"):
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
