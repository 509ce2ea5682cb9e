"""A program that has no Spark of its own: it reads and writes topics through a Spark Connect server.

    python -m tests.spark.connect_client SERVER BOOTSTRAP SOURCE TARGET CHECKPOINT

Prints how many records a batch read of the source finds, then copies the source to the target, exactly once.
"""

from __future__ import annotations

import sys

from penstock.spark import session, write_stream


def run(server: str, bootstrap: str, source: str, target: str, checkpoint: str) -> None:
    spark = session(server)
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": source, "startingOffsets": "earliest"}
    print(spark.read.format("penstock").options(**options).load().count(), flush=True)
    stream = spark.readStream.format("penstock").options(**options, maxOffsetsPerTrigger=60).load()
    write_stream(
        stream.select("key", "value"),
        bootstrap=bootstrap,
        query=f"copy-to-{target}",
        checkpoint=checkpoint,
        topic=target,
        trigger={"availableNow": True},
    ).awaitTermination()
    spark.stop()


if __name__ == "__main__":
    run(*sys.argv[1:])
