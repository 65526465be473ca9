"""Files of a data set by name, from a folder or a tar archive."""

import gzip
import tarfile
import zlib
from pathlib import Path

from muster.fitting.errors import DataError

_MOST_BYTES = 1 << 30
"""Maximum size of one file: ten times the largest of CIFAR."""
_MOST_FILES = 1_000


def read_files(path: Path) -> dict[str, bytes]:
    """Return the content of the files of a folder or archive, by name without folders.

    Links and other entries that are not regular files are skipped; nothing is written.

    Raises:
        DataError: The archive is damaged, or too large for a data set.
    """
    if path.is_dir():
        return {each.name: _read(each) for each in sorted(path.iterdir()) if each.is_file()}
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(path, "r|*") as archive:
            for member in archive:
                if not member.isfile():
                    continue
                if member.size > _MOST_BYTES or len(found) >= _MOST_FILES:
                    raise _too_large(path)
                opened = archive.extractfile(member)
                assert opened is not None  # it is a file
                found[Path(member.name).name] = opened.read(member.size)
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(
            f"{path} is damaged: {error}",
            "the archive is incomplete, or was changed in transit",
            "download it again, and compare its size and checksum with those that its authors "
            "publish",
        ) from error
    return found


def _read(path: Path) -> bytes:
    if path.stat().st_size > _MOST_BYTES:
        raise _too_large(path)
    return path.read_bytes()


def _too_large(path: Path) -> DataError:
    return DataError(
        f"{path} has a file of more than {_MOST_BYTES >> 30} GiB, or too many files",
        "CIFAR is much smaller, so this is a different archive",
        "another --data",
    )
