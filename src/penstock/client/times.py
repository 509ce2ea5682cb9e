"""Times as arguments: a datetime, or milliseconds since 1970 as Kafka counts them."""

from __future__ import annotations

from datetime import datetime

from penstock.client.errors import ConfigurationError


def to_timestamp_ms(time: int | datetime) -> int:
    """Milliseconds since 1970. A datetime without a zone is taken as local time, as Python does."""
    milliseconds = round(time.timestamp() * 1000) if isinstance(time, datetime) else time
    if milliseconds < 0:
        raise ConfigurationError(f"{time} is before 1970: Kafka knows no such time")
    return milliseconds
