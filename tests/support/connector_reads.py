"""What reads of topics give, in a form that two connectors can be compared by.

It is also the program that reads with Spark's own connector, run by the interpreter that has it:

    python connector_reads.py JAR,JAR,... < {"name": {"options": {...}, "is_streaming": false}, ...}

and prints what each read gave as one line of JSON.
"""

from __future__ import annotations

import json
import sys
import tempfile
from typing import Any

from pyspark.sql import SparkSession


def run_reads(spark: SparkSession, source: str, reads: dict[str, Any]) -> dict[str, Any]:
    """The schema and the rows of each read."""
    return {
        name: _streamed(spark, source, read["options"], f"read_{number}")
        if read["is_streaming"]
        else _loaded(spark.read.format(source).options(**read["options"]).load())
        for number, (name, read) in enumerate(reads.items())
    }


def _streamed(spark: SparkSession, source: str, options: dict[str, str], table: str) -> Any:
    """All that a streaming query reads until it has caught up."""
    frame = spark.readStream.format(source).options(**options).load()
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = frame.writeStream.format("memory").queryName(table).option("checkpointLocation", checkpoint)
        writer.trigger(availableNow=True).start().awaitTermination()
    return _loaded(spark.table(table))


# Text that is not UTF-8 would look the same as JSON: names of headers are compared byte by byte.
_COMPARED = {
    "timestamp": "unix_micros(timestamp) as timestamp",
    "headers": "transform(headers, header -> struct(cast(header.key as binary) as key, header.value)) as headers",
}


def _loaded(frame: Any) -> Any:
    """Rows keep the order within their partition; which partition comes first is nobody's promise."""
    columns = ", ".join(_COMPARED.get(name, name) for name in frame.columns)
    found = frame.selectExpr(f"to_json(struct({columns}), map('ignoreNullFields', 'false')) as row").collect()
    rows = sorted((json.loads(one.row) for one in found), key=lambda row: (row["topic"], row["partition"]))
    return {"schema": frame.schema.jsonValue(), "rows": rows}


def main() -> None:
    settings = {
        "spark.jars": sys.argv[1],
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",  # it does not run long enough for more
        "spark.driver.host": "127.0.0.1",
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
    }
    spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    print(json.dumps(run_reads(spark, "kafka", json.load(sys.stdin))))
    spark.stop()


if __name__ == "__main__":
    main()
