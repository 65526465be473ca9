"""Data sets: what is read, and that what is missing, damaged or hostile is named."""

import json
import os
import pickle
import struct
import sys
import zipfile

import numpy as np
import pytest
from small_data import (
    cifar10_files,
    cifar100_files,
    drawn_images,
    packed,
    pickled_files,
    records,
    unpacked,
)

from muster.cli.main import main
from muster.fitting.data import load_data
from muster.fitting.errors import DataError
from muster.fitting.parts import split_by_class
from muster.fitting.pickled import read_pickled


def refused(path):
    with pytest.raises(DataError) as found:
        load_data(path)
    assert all("\n" not in part for part in found.value.args)
    return str(found.value)


# ---- digits


def test_the_digits_are_split_the_same_way_for_every_seed():
    one, other = load_data("digits", seed=1), load_data("digits", seed=2)
    assert one.sha256 == other.sha256
    assert one.x_train.shape == (1438, 8, 8, 1) and one.x_test.shape == (359, 8, 8, 1)
    assert one.x_train.dtype == np.uint8 and one.x_train.max() == 240
    assert (np.bincount(one.y_test) >= 35).all()


def test_without_scikit_learn_the_error_has_the_line_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    said = refused("digits")
    assert "scikit-learn" in said and "[fit]" in said


def test_a_share_of_every_class_is_tested_with_and_nothing_twice():
    labels = np.array([0] * 10 + [1] * 3 + [2] * 2)
    train, test = split_by_class(labels, 0.2, seed=3)
    assert sorted([*train, *test]) == list(range(15))
    assert np.bincount(labels[test]).tolist() == [2, 1, 1]


def test_the_only_sample_of_a_class_is_learnt_from():
    train, test = split_by_class(np.array([0, 0, 0, 1]), 0.5, seed=3)
    assert 3 in train and 3 not in test and len(test) == 2


# ---- CIFAR


@pytest.mark.parametrize("form", ["folder", "archive"])
def test_cifar_10_is_read_in_its_binary_form(tmp_path, form):
    files = cifar10_files()
    where = (unpacked if form == "folder" else packed)(files, tmp_path / "cifar.tar.gz")
    found = load_data(where)
    assert found.name == "cifar10" and found.classes[3] == "cat"
    assert found.x_train.shape == (20, 32, 32, 3) and found.x_test.shape == (4, 32, 32, 3)
    record = records(4, 2, 10)[1]  # the second one of the second file
    assert found.y_train[5] == record[0]
    assert found.x_train[5, 7, 9].tolist() == [record[1 + c * 1024 + 7 * 32 + 9] for c in range(3)]


def test_cifar_100_is_read_with_its_fine_labels(tmp_path):
    found = load_data(packed(cifar100_files(), tmp_path / "c.tar.gz", "cifar-100-binary"))
    assert found.name == "cifar100" and len(found.classes) == 100
    assert found.y_test.tolist() == records(4, 2, 20, labels=2)[:, 1].tolist()


@pytest.mark.timeout(120)
def test_a_network_is_fitted_to_the_archive_as_it_is_published(tmp_path):
    archive = packed(cifar10_files(), tmp_path / "cifar-10-binary.tar.gz")
    words = ["--epochs", "1", "--batch-size", "8", "--quiet", "--run-dir", str(tmp_path / "run")]
    assert main(["fit", "resnet8", "--data", str(archive), *words]) == 0
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert (result["data"], result["samples"], result["test_samples"]) == ("cifar10", 20, 4)
    assert result["parameters"] == 75_290


@pytest.mark.parametrize("protocol", [2, 4])
def test_the_python_form_holds_the_same_images_and_labels(tmp_path, protocol):
    binary = load_data(packed(cifar10_files(), tmp_path / "b.tar.gz"))
    python = load_data(packed(pickled_files(protocol=protocol), tmp_path / "p.tar.gz"))
    assert np.array_equal(binary.x_train, python.x_train)
    assert np.array_equal(binary.y_test, python.y_test)
    assert python.classes[2] == "class2"


def python_2_pickle():
    """Return a pickle as Python 2 wrote those of CIFAR: texts are bytes, arrays hold one."""
    raw = bytes(range(6))
    return (
        b"\x80\x02}q\x01(U\x04dataq\x02cnumpy.core.multiarray\n_reconstruct\nq\x03"
        b"cnumpy\nndarray\nq\x04K\x00\x85U\x01b\x87Rq\x05(K\x01K\x02K\x03\x86"
        b"cnumpy\ndtype\nq\x06U\x02u1K\x00K\x01\x87Rq\x07(K\x03U\x01|NNNJ\xff\xff\xff\xff"
        b"J\xff\xff\xff\xffK\x00tb\x89U\x06" + raw + b"tbU\x06labelsq\x08]q\t(K\x03K\x07eu."
    )


def test_a_pickle_of_python_2_is_read():
    found = read_pickled(python_2_pickle())
    assert found[b"labels"] == [3, 7]
    assert found[b"data"].tolist() == [[0, 1, 2], [3, 4, 5]]


class Evil:
    def __reduce__(self):
        return os.mkdir, ("pwned",)


@pytest.mark.parametrize("protocol", range(6))
def test_a_pickle_that_names_code_runs_none_and_is_refused(tmp_path, monkeypatch, protocol):
    monkeypatch.chdir(tmp_path)
    files = {**pickled_files(), "data_batch_3": pickle.dumps({b"data": Evil()}, protocol)}
    said = refused(unpacked(files, tmp_path / "cifar"))
    assert "data_batch_3" in said and "binary version" in said
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize(
    "value", [{b"data": np.zeros(3)}, {b"data": np.array(["x"], object)}, {1.5: 2}, {1, 2}]
)
def test_a_pickle_of_other_values_than_images_and_labels_is_refused(value):
    with pytest.raises(ValueError):
        read_pickled(pickle.dumps(value, 2))


def test_a_pickle_cut_off_anywhere_is_refused_and_never_a_traceback():
    whole = python_2_pickle()
    for length in range(len(whole)):
        with pytest.raises(ValueError):
            read_pickled(whole[:length])


def damage_cut_gzip(tmp_path):
    path = packed(cifar10_files(), tmp_path / "c.tar.gz")
    path.write_bytes(path.read_bytes()[:-3_000])
    return path, "damaged"


def damage_no_gzip(tmp_path):
    path = tmp_path / "c.tar.gz"
    path.write_bytes(b"<html>not found</html>" * 100)
    return path, "damaged"


def damage_cut_file(tmp_path):
    files = cifar10_files()
    files["data_batch_4.bin"] = files["data_batch_4.bin"][:-1]
    return unpacked(files, tmp_path / "c"), "data_batch_4.bin has"


def damage_cut_at_a_record(tmp_path):
    files = cifar10_files()
    files["data_batch_4.bin"] = files["data_batch_4.bin"][:-3073]
    return unpacked(files, tmp_path / "c"), "training and 4 test images"


def damage_absent_file(tmp_path):
    files = cifar10_files()
    del files["data_batch_2.bin"]
    return unpacked(files, tmp_path / "c"), "data_batch_2.bin does not exist"


def damage_label(tmp_path):
    files = cifar10_files()
    files["test_batch.bin"] = b"\x0b" + files["test_batch.bin"][1:]
    return unpacked(files, tmp_path / "c"), "labels from"


def damage_other_archive(tmp_path):
    return packed({"readme.txt": b"hello"}, tmp_path / "c.tar.gz"), "is not CIFAR"


def damage_missing(tmp_path):
    return tmp_path / "nowhere.tar.gz", "there is no data in"


def damage_other_file(tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    return tmp_path / "notes.txt", "not a data set that muster can read"


DAMAGES = [value for name, value in sorted(globals().items()) if name.startswith("damage_")]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda each: each.__name__)
def test_what_is_missing_or_damaged_is_named_with_code_2_and_makes_no_run(
    damage, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    path, message = damage(tmp_path)
    assert message in refused(path)
    assert main(["fit", "resnet8", "--data", str(path)]) == 2
    said = capsys.readouterr().err
    assert message in said and len(said.splitlines()) == 3
    assert not (tmp_path / "runs").exists()


# ---- .npz


def saved(path, **changes):
    x, y = drawn_images(12)
    arrays = {"x_train": x, "y_train": y, "x_test": x, "y_test": y, **changes}
    np.savez(path, **{name: each for name, each in arrays.items() if each is not None})
    return path


@pytest.mark.parametrize("layout", [(0, 1, 2, 3), (0, 3, 1, 2)])
def test_an_npz_holds_images_in_any_layout(tmp_path, layout):
    x = np.random.default_rng(0).integers(0, 256, (12, 8, 6, 3), np.uint8)
    given = x.transpose(layout)
    found = load_data(saved(tmp_path / "d.npz", x_train=given, x_test=np.asfortranarray(given)))
    assert np.array_equal(found.x_train, x) and np.array_equal(found.x_test, x)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y_test": None}, "no array y_test"),
        ({"y_train": np.zeros(12)}, "labels are whole numbers"),
        ({"y_train": np.zeros(11, np.int64)}, "12 samples and 11 labels"),
        ({"y_train": np.full(12, -1)}, "labels from -1"),
        ({"x_train": np.zeros((12, 8, 8), np.int64)}, "samples are uint8 images"),
        ({"x_train": np.full((12, 3), np.nan)}, "finite floats"),
        ({"x_train": np.zeros((12, 9, 9), np.uint8)}, "all samples have one shape"),
        ({"x_train": np.array([None] * 12)}, "which it is not"),
    ],
)
def test_an_npz_of_something_else_is_refused_by_name(tmp_path, changes, message):
    assert message in refused(saved(tmp_path / "d.npz", **changes))


def test_an_npz_that_claims_to_be_huge_takes_no_memory(tmp_path):
    head = repr({"descr": "|u1", "fortran_order": False, "shape": (2**40, 32, 32)}).encode()
    text = head + b" " * (117 - len(head)) + b"\n"
    entry = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text
    path = saved(tmp_path / "d.npz")
    with zipfile.ZipFile(tmp_path / "huge.npz", "w") as made, zipfile.ZipFile(path) as good:
        for name in good.namelist():
            made.writestr(name, entry if name == "x_train.npy" else good.read(name))
    assert "x_train says that it is" in refused(tmp_path / "huge.npz")


def test_a_damaged_npz_is_refused_wherever_it_is_cut(tmp_path):
    whole = saved(tmp_path / "d.npz").read_bytes()
    for part in (0, 10, len(whole) // 2, len(whole) - 5):
        (tmp_path / "cut.npz").write_bytes(whole[:part])
        assert "is damaged" in refused(tmp_path / "cut.npz")


# ---- folders of images


def written_images(path, count=5, size=(8, 8), mode="L", classes=("bad", "good")):
    image = pytest.importorskip("PIL.Image")
    for name in classes:
        (path / name).mkdir(parents=True)
        for number in range(count):
            image.new(mode, size, number).save(path / name / f"{number}.png")
    return path


def test_folders_are_classes_in_the_order_of_their_names_and_split_by_the_seed(tmp_path):
    folder = written_images(tmp_path / "images")
    one, same, other = (load_data(folder, split=0.4, seed=seed) for seed in (0, 0, 1))
    assert one.classes == ("bad", "good") and one.x_train.shape == (6, 8, 8, 1)
    assert one.y_test.tolist() == [0, 0, 1, 1]
    assert one.sha256 == same.sha256 != other.sha256


def test_folders_train_and_test_are_taken_as_they_are_and_grey_beside_colours(tmp_path):
    written_images(tmp_path / "images" / "train", 3)
    written_images(tmp_path / "images" / "test", 2, mode="RGB")
    found = load_data(tmp_path / "images")
    assert found.x_train.shape == (6, 8, 8, 3) and found.x_test.shape == (4, 8, 8, 3)


def test_a_damaged_image_or_one_of_another_size_is_named(tmp_path):
    folder = written_images(tmp_path / "images")
    (folder / "good" / "7.png").write_bytes(b"no image")
    assert "7.png is damaged" in refused(folder)
    (folder / "good" / "7.png").unlink()
    written_images(tmp_path / "more", 1, (9, 8))
    (tmp_path / "more" / "bad" / "0.png").rename(folder / "bad" / "9.png")
    assert "2 sizes, such as 8 x 8 and 9 x 8" in refused(folder)


def test_without_pillow_the_error_has_the_line_that_installs_it(tmp_path, monkeypatch):
    folder = written_images(tmp_path / "images")
    monkeypatch.setitem(sys.modules, "PIL", None)
    said = refused(folder)
    assert "Pillow" in said and "[fit]" in said


def test_a_folder_without_classes_is_refused(tmp_path):
    assert "has 0 folders" in refused(tmp_path)
