"""`muster/devices.py`: names, what is there, and what is moved how often."""

import os

import numpy as np
import pretend
import pytest
import torch
from torch import nn

from muster import devices
from muster.cli.devices_here import DeviceCost, say_devices
from muster.cli.main import main
from muster.devices import HOST, Device, check_name, current_device, find_device, networks_on
from muster.errors import OptionError
from muster.nets import Adam, DeviceAdam, FlatParameters, make_adam, make_net
from muster.recipes.bench import bench


@pytest.fixture
def there():
    with pretend.devices():
        yield find_device("pretend")


@pytest.mark.parametrize("name", ["cdua", "cuda:", "cuda:x", "auto:0", "cpu:1", "", 1, None])
def test_what_is_no_name_of_a_device_is_refused_in_three_lines(name):
    with pytest.raises(OptionError) as caught:
        check_name(name)
    assert len(caught.value.args) == 3


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is one")
def test_a_device_that_is_not_here_is_refused_before_anything_starts(tmp_path, capsys):
    run = str(tmp_path / "run")
    words = ["train", "ppo", "CartPole-v1", "--run-dir", run, "--device", "cuda"]
    assert main(words) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 3 and not (tmp_path / "run").exists()
    assert "--device cuda is not available" in said[0] and "finds no cuda" in said[1]
    assert "--device cpu" in said[2]


def test_a_number_that_is_too_high_is_refused_with_how_many_there_are(there):
    assert find_device("pretend:1").name == "pretend:1"
    with pytest.raises(OptionError, match="there are 2, numbered from 0"):
        find_device("pretend:2")


@pytest.mark.skipif(torch.accelerator.is_available() and torch.cuda.is_available(), reason="a GPU")
def test_auto_is_the_cpu_where_there_is_no_accelerator():
    assert find_device("auto") is HOST


@pytest.mark.parametrize(
    ("name", "there", "found"),
    [
        ("cuda", 2, ["cuda", "cuda:1", "cuda"]),
        ("auto", 2, ["auto", "cuda:1", "auto"]),
        ("cuda", 0, ["cuda", "cuda", "cuda"]),
        ("cuda", 1, ["cuda", "cuda", "cuda"]),
        ("cuda:1", 2, ["cuda:1", "cuda:1", "cuda:1"]),
        ("auto", 0, ["auto", "auto", "auto"]),
        ("cpu", 2, ["cpu", "cpu", "cpu"]),
    ],
)
def test_processes_that_compute_take_devices_in_turn(monkeypatch, name, there, found):
    monkeypatch.setattr(devices, "_count", lambda kind: there if kind == "cuda" else 0)
    assert [devices.device_in_turn(name, member) for member in range(3)] == found


def test_auto_is_the_first_accelerator_and_cuda_is_asked_for_repeatable_sums(monkeypatch):
    monkeypatch.setattr(devices, "_count", lambda kind: 2 if kind in ("cuda", "mps") else 0)
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", False)
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")  # or it would stay after this test
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
    assert find_device("mps").name == "mps" and not torch.backends.cudnn.deterministic
    assert find_device("auto").name == "cuda" and find_device("cuda:1").name == "cuda:1"
    assert torch.backends.cudnn.deterministic and os.environ["CUBLAS_WORKSPACE_CONFIG"]


def test_arrays_of_a_batch_go_in_one_copy_and_come_back_as_they_were(there):
    tree = {
        "image": np.arange(30, dtype=np.uint8).reshape(2, 3, 5),
        "rest": (np.array([[True], [False]]), np.arange(2), None),
        "wide": np.linspace(0, 1, 14).reshape(2, 7),
    }
    staged = there.stage(tree)
    assert (there.copies.to_device, there.copies.to_host) == (1, 0)
    assert staged["wide"].dtype == torch.float32 and staged["rest"][2] is None
    for made, given in [
        (staged["image"], tree["image"]),
        (staged["rest"][0], tree["rest"][0]),
        (staged["rest"][1], tree["rest"][1]),
        (staged["wide"], tree["wide"].astype(np.float32)),
    ]:
        assert made.device.type == "pretend"
        assert np.array_equal(there.fetch(made)[0], given)
    assert there.stage(staged)["image"] is staged["image"], "what is there is not copied again"
    assert there.copies.to_device == 1
    before = there.copies.to_host
    one, other = there.fetch(staged["wide"], staged["wide"] * 2)
    assert there.copies.to_host == before + 1 and np.array_equal(2 * one, other)


def test_on_the_host_nothing_is_copied():
    array = np.ones((2, 3), np.float32)
    HOST.stage(array)[:] = 7
    assert (array == 7).all() and HOST.copies.to_device == HOST.copies.to_host == 0
    HOST.stage(array, own=True)[:] = 8
    assert (array == 7).all()


def test_networks_are_made_for_the_cpu_outside_of_the_block(there):
    with networks_on(there):
        assert current_device() is there
        flat = FlatParameters(nn.Linear(3, 2))
    assert current_device() is HOST and flat.device is there
    assert FlatParameters(nn.Linear(3, 2)).device is HOST


def test_weights_are_read_once_after_they_changed(there):
    flat = FlatParameters(nn.Linear(3, 2), there)
    first = flat.vector.copy()
    assert there.copies.to_host == 0, "it is what it was made with"
    flat.tensor += 1
    flat.changed()
    assert np.array_equal(flat.vector, first + 1) and there.copies.to_host == 1
    assert np.array_equal(flat.vector, first + 1) and there.copies.to_host == 1
    with pytest.raises(ValueError, match="read-only"):
        flat.vector[:] = 0
    flat.load(first)
    assert torch.equal(flat.tensor.cpu(), torch.from_numpy(first))
    assert flat.module.weight.device.type == "pretend"


def test_weights_and_buffers_move_to_the_host_and_back_by_their_names(there):
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 4))
    module[2].weight = nn.Parameter(torch.ones(4, 4))
    module.append(module[2])  # used twice, held once
    here = FlatParameters(module)
    state, sha = here.state_dict(), here.sha256()
    away = FlatParameters(module, there)
    assert away.sha256() == sha
    away.load(np.zeros_like(away.vector))
    assert away.sha256() != sha
    away.load_state_dict(state)
    assert away.sha256() == sha
    other = FlatParameters(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 4)))
    assert other.vector.size == away.vector.size


def test_target_networks_follow_on_the_device_as_on_the_host(there):
    torch.manual_seed(0)
    ones, others = nn.Linear(5, 3), nn.Linear(5, 3)
    expected = FlatParameters(nn.Linear(5, 3))
    expected.load(FlatParameters(ones).vector)
    expected.copy_from(FlatParameters(others), 0.25)
    mine, theirs = FlatParameters(ones, there), FlatParameters(others, there)
    mine.copy_from(theirs, 0.25)
    assert np.allclose(mine.vector, expected.vector, atol=1e-7)
    mine.copy_from(theirs)
    assert np.array_equal(mine.vector, theirs.vector)


def test_adam_on_a_device_is_adam_on_the_host_up_to_rounding(there):
    rng = np.random.default_rng(0)
    here, away = FlatParameters(nn.Linear(9, 7)), FlatParameters(nn.Linear(9, 7), there)
    away.load(here.vector)
    one, other = make_adam(here, 1e-2), make_adam(away, 1e-2)
    assert type(one) is Adam and type(other) is DeviceAdam
    for step in range(20):
        grad = rng.standard_normal(here.vector.size).astype(np.float32)
        norms = (
            one.step(grad, 1.0 if step % 2 else None),
            other.step(grad, 1.0 if step % 2 else None),
        )
        assert norms[0] == pytest.approx(norms[1], rel=1e-6)
    assert np.allclose(here.vector, away.vector, atol=1e-6)
    again = make_adam(FlatParameters(nn.Linear(9, 7)), 1e-2)
    again.load_state_dict(other.state_dict())
    assert np.allclose(again.mean, one.mean, atol=1e-6) and again.state_dict()["steps"] == 20
    before = away.vector.copy()
    assert not np.isfinite(other.step(np.full_like(before, np.inf)))
    assert np.array_equal(away.vector, before) and other.state_dict()["steps"] == 20


def test_what_is_left_on_the_host_is_an_error_and_no_silent_copy(there):
    module = nn.Linear(3, 2)
    net = make_net(module, FlatParameters(module, there))
    assert net.by_torch == "the network is on the device pretend"
    with pytest.raises(RuntimeError, match="same device"):
        module(torch.ones(1, 3))
    with pytest.raises(RuntimeError, match="pretend:0, pretend:1"):
        torch.ones(3, device="pretend:0") + torch.ones(3, device="pretend:1")
    with pytest.raises((RuntimeError, TypeError)):
        module.weight.detach().numpy()


def test_doctor_times_what_is_here_and_says_which_is_faster(capsys):
    assert main(["doctor", "CartPole-v1", "--device", "auto"]) == 0
    lines = capsys.readouterr().out.splitlines()
    at = lines.index("devices: a 64x64 network, 8 environments, updates of 64")
    assert lines[at + 1].startswith("  cpu ") and max(map(len, lines)) <= 80
    assert any("--device cpu" in line for line in lines[at:])


def test_doctor_wants_to_know_for_which_environment_a_device_is(capsys):
    assert main(["doctor", "--device", "auto"]) == 2
    assert "muster doctor CartPole-v1 --device auto" in capsys.readouterr().err


def test_a_bench_compares_with_the_cpu_alone():
    with pytest.raises(OptionError, match="device=auto is not possible with muster bench"):
        bench("ppo", "CartPole-v1", device="auto")


CPU = DeviceCost("cpu", True, act_us=20, update_us=80, copy_us=0)
GPU = DeviceCost("cuda", False, act_us=200, update_us=600, copy_us=100)


@pytest.mark.parametrize(
    ("costs", "said"),
    [
        ([CPU], "--device cpu: torch 2.13.0 finds no cuda, mps, xpu here"),
        ([CPU, GPU], "--device cpu: 7.6 times as fast, because copying takes longer than updates"),
        (
            [DeviceCost("cpu", True, 20, 300, 0), GPU],
            "--device cpu: 2.1 times as fast, because overhead dominates small networks",
        ),
        (
            [DeviceCost("cpu", False, 900, 9_000, 0), GPU],
            "--device cuda: 14.6 times as fast, because speed outweighs the cost of copies",
        ),
        ([DeviceCost("cpu", False, 200, 610, 0), GPU], "cuda is no faster than cpu"),
    ],
)
def test_doctor_says_why_a_device_is_faster(costs, said):
    lines = say_devices(costs, "2.13.0")
    assert said in lines[-1] and max(map(len, lines)) <= 80
    assert len(lines) == 2 + len(costs)


def test_a_device_treated_like_any_other_shares_no_memory_with_numpy():
    device = Device("cpu", by_torch=True)
    array = np.ones(3, np.float32)
    device.stage(array)[:] = 7
    assert (array == 1).all() and device.copies.to_device == 1
