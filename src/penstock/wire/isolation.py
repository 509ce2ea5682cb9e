"""How much of open transactions a reader sees, as requests say it (`isolation_level` of Fetch and ListOffsets)."""

from __future__ import annotations

from typing import Final

READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
