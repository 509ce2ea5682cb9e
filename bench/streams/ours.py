"""Penstock's side of the comparison: SCENARIO BOOTSTRAP RECORDS TABLE OUTPUT GROUP FOLDER"""

from __future__ import annotations

import sys

from penstock.spark import session
from penstock.streams import TEXT, Application, col, fn, tumbling

_BATCH_RECORDS = "1000000"


def main(scenario: str, bootstrap: str, records: str, table: str, output: str, group: str, folder: str) -> None:
    app = Application(group, key=TEXT, value=TEXT, state_dir=folder)
    stream = app.stream(records)
    if scenario == "count":
        counts = stream.group_by_key().window(tumbling("10 seconds", grace="1 minute")).count(step="count")
        counts.to_stream().to(output)
    else:
        joined = stream.join(app.table(table), value=fn.concat_ws(" ", col.left, col.right), step="join")
        joined.to(output, value=TEXT)
    spark = session("local[2]", spark_sql_shuffle_partitions=2)
    app.run(bootstrap, spark=spark, reading={"maxOffsetsPerTrigger": _BATCH_RECORDS}, http=None).wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
