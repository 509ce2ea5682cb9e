"""Faust's side of the comparison, with its own defaults: SCENARIO BOOTSTRAP RECORDS TABLE OUTPUT GROUP FOLDER

The counts are in a table, whose changelog is the output.
"""

from __future__ import annotations

import sys
from typing import Any

import faust

_RAW = {"key_serializer": "raw", "value_serializer": "raw"}


def main(scenario: str, bootstrap: str, records: str, table: str, output: str, group: str, folder: str) -> None:
    app: Any = faust.App(
        group,
        broker=f"kafka://{bootstrap}",
        store="memory://",
        topic_partitions=4,
        broker_commit_interval=1.0,
        datadir=folder,
        web_enabled=False,
    )
    source = app.topic(records, **_RAW)
    to = app.topic(output, **_RAW)
    if scenario == "count":
        counts = app.Table("counts", default=int).tumbling(10.0, expires=120.0)

        @app.agent(source)
        async def count(stream: Any) -> None:
            async for key, _ in stream.items():
                counts[key.decode()] += 1
    else:
        rows = app.Table("rows", default=str)

        @app.agent(app.topic(table, **_RAW))
        async def learn(stream: Any) -> None:
            async for key, value in stream.items():
                rows[key.decode()] = value.decode()

        @app.agent(source)
        async def join(stream: Any) -> None:
            async for key, value in stream.items():
                await to.send(key=key, value=value + b" " + rows[key.decode()].encode())

    sys.argv = [sys.argv[0], "worker", "--loglevel=warn", "--without-web"]
    app.main()


if __name__ == "__main__":
    main(*sys.argv[1:])
