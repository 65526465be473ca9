"""A disk that forgets what was not synced: what a power cut may leave of a series of calls.

`DiskModel` does every call for real and notes it. `after_power_cut(n, image, target)` replays the
first n of them on a model in which a file has content that is synced and content that is not, and a
directory has names that are synced and changes of names that are not; and writes one possible
remainder to `target`:

    image 0    nothing that was not synced is left
    image 1    every change of names is there, but no content that was not synced
    others     some changes of names are there, in any choice, and a beginning of each content
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from muster.run.files import Buffer, Files


@dataclass
class _File:
    content: bytes = b""
    synced: bytes = b""


@dataclass
class _Directory:
    """`names` are as the program sees them; `synced` plus some of `pending` survive."""

    names: dict[str, "_Node"] = field(default_factory=dict)
    synced: dict[str, "_Node"] = field(default_factory=dict)
    pending: list[dict[str, "_Node | None"]] = field(default_factory=list)

    def change(self, changes: dict[str, "_Node | None"]) -> None:
        self.pending.append(changes)
        _apply(self.names, changes)

    def sync(self) -> None:
        self.synced, self.pending = dict(self.names), []


_Node = _File | _Directory
_Tree = dict[str, _Node]


def _apply(names: _Tree, changes: dict[str, _Node | None]) -> None:
    for name, node in changes.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


class DiskModel(Files):
    """Does every call in `root` for real, and remembers what it was.

    Args:
        root: The directory, whose present content counts as synced.
        exchange: Whether the file system can exchange two names.
    """

    def __init__(self, root: Path, exchange: bool = True) -> None:
        self.root = root
        self.history: list[Callable[[_Replay], None]] = []
        self._can_exchange = exchange
        self._start = _scan(root)
        self._open: dict[int, Path] = {}

    def after_power_cut(self, calls: int, image: int, target: Path) -> None:
        """Write what may be left if the power fails after that many calls."""
        replay = _Replay(self.root, _scan_copy(self._start))
        for call in self.history[:calls]:
            call(replay)
        rng = np.random.default_rng([calls, image])
        _materialise(replay.top, target, image, rng)

    def _note(self, call: Callable[["_Replay"], None]) -> None:
        self.history.append(call)

    def mkdir(self, path: Path) -> None:
        """Make it, and note it."""
        super().mkdir(path)
        self._note(lambda disk: disk.directory(path.parent).change({path.name: _Directory()}))

    def create(self, path: Path) -> int:
        """Make it, and note it."""
        fd = super().create(path)
        self._open[fd] = path
        self._note(lambda disk: disk.directory(path.parent).change({path.name: _File()}))
        return fd

    def write(self, fd: int, data: Buffer) -> int:
        """Write it, and note it."""
        path, content = self._open[fd], bytes(data)

        def call(disk: _Replay) -> None:
            disk.file(path).content += content

        self._note(call)
        return super().write(fd, data)

    def fsync(self, fd: int) -> None:
        """Sync it, and note it."""
        path = self._open[fd]

        def call(disk: _Replay) -> None:
            file = disk.file(path)
            file.synced = file.content

        self._note(call)
        super().fsync(fd)

    def fsync_dir(self, path: Path) -> None:
        """Sync it, and note it."""
        if path.is_relative_to(self.root):
            self._note(lambda disk: disk.directory(path).sync())
        super().fsync_dir(path)

    def rename(self, source: Path, target: Path) -> None:
        """Rename it, and note it."""
        super().rename(source, target)
        assert source.parent == target.parent

        def call(disk: _Replay) -> None:
            parent = disk.directory(source.parent)
            parent.change({source.name: None, target.name: parent.names[source.name]})

        self._note(call)

    def exchange(self, one: Path, other: Path) -> bool:
        """Exchange them, and note it."""
        if not self._can_exchange or not super().exchange(one, other):
            return False

        def call(disk: _Replay) -> None:
            parent = disk.directory(one.parent)
            names = parent.names
            parent.change({one.name: names[other.name], other.name: names[one.name]})

        self._note(call)
        return True

    def unlink(self, path: Path) -> None:
        """Remove it, and note it."""
        super().unlink(path)
        self._note(lambda disk: disk.directory(path.parent).change({path.name: None}))

    def remove_tree(self, path: Path) -> None:
        """Remove it, file by file in the notes."""
        for name in sorted(os.listdir(path)):
            self._note(lambda disk, name=name: disk.directory(path).change({name: None}))  # type: ignore[misc]
        self._note(lambda disk: disk.directory(path.parent).change({path.name: None}))
        super().remove_tree(path)


class _Replay:
    """The disk while the calls are done again on it."""

    def __init__(self, root: Path, top: _Directory) -> None:
        self.root, self.top = root, top

    def directory(self, path: Path) -> _Directory:
        node: _Node = self.top
        for name in path.relative_to(self.root).parts:
            assert isinstance(node, _Directory)
            node = node.names[name]
        assert isinstance(node, _Directory)
        return node

    def file(self, path: Path) -> _File:
        node = self.directory(path.parent).names[path.name]
        assert isinstance(node, _File)
        return node


def _scan(path: Path) -> _Directory:
    """What is there now, all of it synced."""
    names: _Tree = {}
    for entry in sorted(path.iterdir()):
        if entry.is_dir():
            names[entry.name] = _scan(entry)
        else:
            content = entry.read_bytes()
            names[entry.name] = _File(content, content)
    return _Directory(dict(names), dict(names))


def _scan_copy(directory: _Directory) -> _Directory:
    names: _Tree = {}
    for name, node in directory.names.items():
        if isinstance(node, _Directory):
            names[name] = _scan_copy(node)
        else:
            names[name] = _File(node.content, node.synced)
    return _Directory(dict(names), dict(names))


def _materialise(node: _Directory, target: Path, image: int, rng: np.random.Generator) -> None:
    target.mkdir()
    names = dict(node.synced)
    for changes in node.pending:
        if image == 1 or (image > 1 and rng.random() < 0.5):
            _apply(names, changes)
    for name, child in names.items():
        if isinstance(child, _Directory):
            _materialise(child, target / name, image, rng)
        else:
            content = child.synced
            if image > 1 and child.content != child.synced:
                content = child.content[: int(rng.integers(0, len(child.content) + 1))]
            (target / name).write_bytes(content)
