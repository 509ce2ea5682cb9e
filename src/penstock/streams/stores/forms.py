"""What the bytes in a changelog mean, without Spark."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.client.errors import ConfigurationError
from penstock.streams.serdes import BYTES, TEXT, JsonSerde, Serde, WindowedSerde
from penstock.streams.values import from_bytes


class Form(Protocol):
    """Reads keys and values. Keys of windowed tables are `Windowed`."""

    @property
    def is_windowed(self) -> bool: ...

    def key(self, content: bytes) -> Any: ...

    def value(self, content: bytes) -> Any: ...

    def typed_key(self, text: str) -> Any:
        """A key as people type it; of a windowed table, without its window."""
        ...


@dataclass(frozen=True)
class SerdeForm:
    """Bytes as serdes write them. What does not fit is none, as it is to Spark."""

    key_serde: Serde
    value_serde: Serde

    @property
    def is_windowed(self) -> bool:
        return isinstance(self.key_serde, WindowedSerde)

    def key(self, content: bytes) -> Any:
        return _read(self.key_serde, content)

    def value(self, content: bytes) -> Any:
        return _read(self.value_serde, content)

    def typed_key(self, text: str) -> Any:
        serde = self.key_serde.inner if isinstance(self.key_serde, WindowedSerde) else self.key_serde
        if serde in (TEXT, BYTES):
            return text if serde == TEXT else text.encode()
        try:
            return json.loads(text) if isinstance(serde, JsonSerde) else int(text)
        except ValueError:
            raise ConfigurationError(f"key {text!r} cannot be: keys of this store are {serde}") from None


def _read(serde: Serde, content: bytes) -> Any:
    try:
        return from_bytes(serde, content)
    except (ValueError, struct.error):
        return None
