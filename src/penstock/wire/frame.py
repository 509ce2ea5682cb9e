"""Framing: every request and response is a 4-byte size and that many bytes."""

from __future__ import annotations

from penstock.wire._codec import FrameBuffer

__all__ = ["SHARED_BUFFER_BYTES", "SIZE_BYTES", "FrameBuffer"]

SIZE_BYTES = 4

# What is read from a socket at once. Frames that arrive whole within it are not copied.
SHARED_BUFFER_BYTES = 256 * 1024
