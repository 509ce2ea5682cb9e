"""Quix Streams' side of the comparison, with its own defaults: SCENARIO BOOTSTRAP RECORDS TABLE OUTPUT GROUP FOLDER"""

from __future__ import annotations

import sys
from typing import Any

from quixstreams import Application

_TEXT = {"key_deserializer": "str", "value_deserializer": "str"}


def main(scenario: str, bootstrap: str, records: str, table: str, output: str, group: str, folder: str) -> None:
    app: Any = Application(
        broker_address=bootstrap,
        consumer_group=group,
        auto_offset_reset="earliest",
        commit_interval=1.0,
        state_dir=folder,
        loglevel="WARNING",
    )
    frame = app.dataframe(app.topic(records, **_TEXT))
    to = app.topic(output, key_serializer="str", value_serializer="str")
    if scenario == "count":
        counts = frame.tumbling_window(duration_ms=10_000, grace_ms=60_000).count().current()
        counts.apply(lambda one: str(one["value"])).to_topic(to)
    else:
        rows = app.dataframe(app.topic(table, **_TEXT))
        joined = frame.join_asof(rows, how="inner", on_merge=lambda left, right: f"{left} {right}")
        joined.to_topic(to)
    app.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
