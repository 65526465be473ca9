"""Small data sets, in the forms that they are published in."""

import io
import pickle
import tarfile

import numpy as np


def drawn_images(count, shape=(8, 8), seed=0, classes=3):
    """Return images whose label is where they are bright, and the labels."""
    rng = np.random.default_rng(seed)
    y = np.arange(count) % classes
    x = rng.integers(0, 100, (count, *shape), np.uint8)
    step = shape[0] // classes
    for image, label in zip(x, y, strict=True):
        image[label * step : (label + 1) * step] += 120
    return x, y


def records(count, seed, classes, labels=1):
    """Return `count` records of CIFAR's binary form: label bytes, then pixels by channel."""
    rng = np.random.default_rng(seed)
    made = rng.integers(0, 256, (count, labels + 3072), np.uint8)
    made[:, :labels] %= classes
    return made


def cifar10_files(per_file=4):
    files = {f"data_batch_{n}.bin": records(per_file, n, 10).tobytes() for n in range(1, 6)}
    files["test_batch.bin"] = records(per_file, 6, 10).tobytes()
    names = ["airplane", "automobile", "bird", "cat", *map(str, range(6))]
    files["batches.meta.txt"] = ("\n".join(names) + "\n\n").encode()
    return files


def cifar100_files(per_file=4):
    return {
        "train.bin": records(5 * per_file, 1, 20, labels=2).tobytes(),
        "test.bin": records(per_file, 2, 20, labels=2).tobytes(),
    }


def pickled_files(per_file=4, protocol=2):
    """Return CIFAR-10's Python form, as pickles that Python 3 writes."""
    files = {}
    for name, data in cifar10_files(per_file).items():
        if name.endswith(".bin"):
            rows = np.frombuffer(data, np.uint8).reshape(-1, 3073)
            content = {
                b"batch_label": b"training batch",
                b"labels": rows[:, 0].tolist(),
                b"data": np.ascontiguousarray(rows[:, 1:]),
                b"filenames": [b"a.png"] * len(rows),
            }
            files[name.removesuffix(".bin")] = pickle.dumps(content, protocol)
    names = [f"class{n}" for n in range(10)]
    files["batches.meta"] = pickle.dumps({"label_names": names, "num_vis": 3072}, protocol)
    return files


def packed(files, path, folder="cifar-10-batches-bin"):
    """Write files into a tar.gz as the authors publish it, and return its path."""
    with tarfile.open(path, "w:gz") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(f"{folder}/{name}")
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def unpacked(files, path):
    """Write files into a folder, and return it."""
    path.mkdir()
    for name, data in files.items():
        (path / name).write_bytes(data)
    return path
