"""A disk that forgets what was not synced, for tests of power cuts.

Next to the real files, `ForgetfulStorage` keeps what a power cut would leave if nothing but synced data survived:

- What is written to a file becomes durable with `File.sync`.
- New, changed and removed names become durable with `Storage.sync_directory` of their folder (`Storage.replace` ends
  with that). A folder that is renamed takes its durable names with it.

`crash_to(path)` makes a data directory out of that. With a random generator, some of what was not synced survives too,
as it does on real disks: the names of a folder, and pages behind the synced part of a file.
"""

from __future__ import annotations

import os
import random
import threading
from dataclasses import dataclass, field
from pathlib import Path

from penstock.log.storage import Buffer, File, Storage

_PAGE_BYTES = 64  # what a disk writes whole or not at all; small, so that short test files have several


@dataclass(eq=False)
class _FileNode:
    path: str  # where it is now
    durable: bytearray = field(default_factory=bytearray)
    is_appended_only: bool = False  # since the last sync


@dataclass(eq=False)
class _FolderNode:
    path: str
    durable: dict[str, _FileNode | _FolderNode] = field(default_factory=dict)


class ForgetfulFile(File):
    __slots__ = ("_node", "_storage")

    def __init__(self, path: str, fd: int, storage: ForgetfulStorage, node: _FileNode) -> None:
        super().__init__(path, fd)
        self._storage = storage
        self._node = node

    def write_at(self, data: Buffer, position: int) -> None:
        if position < len(self._node.durable):
            self._node.is_appended_only = False
        super().write_at(data, position)

    def truncate(self, size: int) -> None:
        if size < len(self._node.durable):
            self._node.is_appended_only = False
        super().truncate(size)

    def sync(self) -> None:
        self._storage._keep_content(self, self._node)


class ForgetfulStorage(Storage):
    """Storage below `root`. What is there already counts as durable."""

    def __init__(self, root: Path | str) -> None:
        self._root = os.path.abspath(root)
        self._lock = threading.RLock()  # syncs run in threads
        self._nodes: dict[str, _FileNode | _FolderNode] = {}
        self.sync_count = 0
        os.makedirs(self._root, exist_ok=True)
        for folder, _, files in os.walk(self._root, topdown=False):
            for name in files:
                node = self._file(os.path.join(folder, name))
                node.durable = bytearray(Path(node.path).read_bytes())
            self.sync_directory(folder)

    def _file(self, path: str) -> _FileNode:
        node = self._nodes.get(path)
        if not isinstance(node, _FileNode):
            node = self._nodes[path] = _FileNode(path)
        return node

    def _folder(self, path: str) -> _FolderNode:
        node = self._nodes.get(path)
        if not isinstance(node, _FolderNode):
            node = self._nodes[path] = _FolderNode(path)
        return node

    def _names_in(self, path: str) -> dict[str, _FileNode | _FolderNode]:
        """What is in a folder now. Some files (memory maps) are not made through this class: they become known here."""
        entries = sorted(os.scandir(path), key=lambda entry: entry.name)  # so that a seed replays
        return {e.name: self._folder(e.path) if e.is_dir() else self._file(e.path) for e in entries}

    # ---- what Storage does ----

    def open(self, path: str, *, create: bool = False) -> File:
        opened = super().open(path, create=create)
        with self._lock:
            return ForgetfulFile(path, os.dup(opened.fd), self, self._file(path))

    def _keep_content(self, file: File, node: _FileNode) -> None:
        """What was written to a file so far is durable."""
        with self._lock:
            self.sync_count += 1
            # A memory map may change any part of an index; a log only grows, and can be long.
            start = len(node.durable) if node.is_appended_only and file.path.endswith(".log") else 0
            node.durable[start:] = file.read_at(file.size() - start, start)
            node.is_appended_only = True

    def rename(self, old: str, new: str) -> None:
        with self._lock:
            super().rename(old, new)
            self._forget(new)
            for path in [path for path in self._nodes if path == old or path.startswith(old + os.sep)]:
                node = self._nodes.pop(path)
                node.path = new + path[len(old) :]
                self._nodes[node.path] = node

    def remove(self, path: str) -> None:
        with self._lock:
            super().remove(path)
            self._forget(path)

    def remove_directory(self, path: str) -> None:
        with self._lock:
            super().remove_directory(path)
            self._forget(path)

    def _forget(self, path: str) -> None:
        for known in [known for known in self._nodes if known == path or known.startswith(path + os.sep)]:
            self._nodes.pop(known).path = ""

    def sync_directory(self, path: str) -> None:
        """The names in a folder are durable as they are now."""
        with self._lock:
            names = self._names_in(path)
            self._folder(path).durable = names

    # ---- the power cut ----

    def crash_to(self, path: Path | str, survivors: random.Random | None = None) -> None:
        """Make a data directory of what a power cut at this moment would leave.

        Without `survivors` that is what was synced, and nothing else.
        """
        with self._lock:
            self._restore(self._folder(self._root), str(path), survivors)

    def _restore(self, folder: _FolderNode, to: str, rng: random.Random | None) -> None:
        os.makedirs(to)
        names = folder.durable
        if rng is not None and folder.path and os.path.isdir(folder.path) and rng.random() < 0.5:
            names = self._names_in(folder.path)
        for name, node in names.items():
            if isinstance(node, _FolderNode):
                self._restore(node, os.path.join(to, name), rng)
                continue
            content = bytes(node.durable)
            if rng is not None and node.path:
                content = _mixed(content, Path(node.path).read_bytes(), rng)
            Path(to, name).write_bytes(content)


def _mixed(synced: bytes, written: bytes, rng: random.Random) -> bytes:
    """What may be found of a file of which `synced` is durable and `written` was its last content."""
    if not written.startswith(synced):  # it was cut or overwritten: the old or the new
        return rng.choice((synced, written))
    pages = range(len(synced) // _PAGE_BYTES + 1, len(written) // _PAGE_BYTES + 1)
    size = rng.choice((len(synced), len(written), _PAGE_BYTES * rng.choice(pages) if pages else len(synced)))
    content = bytearray(synced) + bytes(size - len(synced))
    for start in range(len(synced) // _PAGE_BYTES * _PAGE_BYTES, size, _PAGE_BYTES):
        if rng.random() < 0.8:
            content[start : start + _PAGE_BYTES] = written[start : min(start + _PAGE_BYTES, size)]
    return bytes(content)
