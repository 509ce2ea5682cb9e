"""Forgetting what an application has kept, so that it begins anew: checkpoints, stores, internal topics and groups.

The topics that it reads from and writes to for others are left alone.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.client.admin import Admin
from penstock.streams import shape as shapes
from penstock.streams.shape import QueryShape, Shape


@dataclass(frozen=True)
class Leftovers:
    """What there is of an application: folders and files on this machine, topics and groups of the cluster."""

    folders: tuple[Path, ...]
    topics: tuple[str, ...]
    groups: tuple[str, ...]

    @property
    def is_nothing(self) -> bool:
        return not (self.folders or self.topics or self.groups)


def leftovers(admin: Admin, shape: Shape, folder: Path, *, only_gone: bool = False) -> Leftovers:
    """What a reset would delete: all, or only what belongs to queries that are gone."""
    queries = shape.gone if only_gone else {**shape.gone, **shape.queries}
    folders = [folder / name for name in queries]
    if not only_gone:
        folders += [folder / "stores", folder / shapes.FILE]
    topics, groups = set(admin.list_topics()), {one.group for one in admin.list_groups()}
    kept = set(_internal(shape.queries.values())) if only_gone else set()
    return Leftovers(
        tuple(one for one in folders if one.exists()),
        tuple(one for one in _internal(queries.values()) if one in topics and one not in kept),
        tuple(group for name in queries for group in (name, f"{name}.batches") if group in groups),
    )


def reset(admin: Admin, found: Leftovers, folder: Path) -> None:
    """Delete it. What is on this machine goes last: if the cluster fails, the same can be done again."""
    admin.delete_groups(found.groups)
    admin.delete_topics(found.topics)
    for one in found.folders:
        shutil.rmtree(one) if one.is_dir() else one.unlink(missing_ok=True)
    shape = shapes.load(folder)
    if shape is not None:
        shapes.save(replace(shape, gone={}), folder)
    elif folder.exists() and not any(folder.iterdir()):
        folder.rmdir()


def _internal(queries: Iterable[QueryShape]) -> list[str]:
    return list(dict.fromkeys(topic for query in queries for topic in query.internal))
