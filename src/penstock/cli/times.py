"""Times and durations as people type them."""

from __future__ import annotations

import re
import time
from datetime import datetime

from penstock.cli.mistakes import Mistake

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdw])")
_WHOLE = re.compile(rf"(?:{_PART.pattern})+")


def parse_duration_ms(text: str) -> int:
    """ "90s", "1h30m", "2d" in milliseconds."""
    if not _WHOLE.fullmatch(text.strip()):
        raise Mistake(f"{text!r} is no duration: write it like 90s, 1h30m or 2d (ms, s, m, h, d, w)")
    return round(sum(float(number) * _UNITS_MS[unit] for number, unit in _PART.findall(text)))


def parse_time_ms(text: str, now_ms: int | None = None) -> int:
    """A time in milliseconds since 1970: "now", "-1h", "2026-05-01T12:00:00Z", "2026-05-01", or that number itself.

    A time without a zone is local.
    """
    text = text.strip()
    now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    if text == "now":
        return now_ms
    if text.startswith("-"):
        return now_ms - parse_duration_ms(text[1:])
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        raise Mistake(
            f"{text!r} is no time: write it like 2026-05-01T12:00:00Z, or -1h for an hour ago, or as milliseconds"
        ) from None


def time_text(timestamp_ms: int | None) -> str | None:
    """A timestamp for people, in local time."""
    if timestamp_ms is None or timestamp_ms < 0:
        return None
    return datetime.fromtimestamp(timestamp_ms / 1000).astimezone().isoformat(timespec="milliseconds")
