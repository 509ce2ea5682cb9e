"""The metadata log: one ordered, fenced sequence of records that every broker applies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from penstock.metadata.image import Delta, Image


class NotController(Exception):
    """An append with an epoch that is not the current controller's."""


Listener = Callable[[Image, Delta], None]


class MetadataLog(Protocol):
    """What a backend gives: the committed image, and appends that only the current controller can make.

    `append` returns when the records are durable and applied: the image has them, and the listener was told. Records
    appended together become visible together, or not at all.
    """

    @property
    def image(self) -> Image:
        """All committed records."""
        ...

    def listen(self, listener: Listener) -> None:
        """Call `listener` with every new image, in order, on the event loop."""
        ...

    async def append(self, records: Sequence[Any], epoch: int) -> None:
        """Write records as the controller of `epoch`. Raises NotController if another one has taken over."""
        ...
