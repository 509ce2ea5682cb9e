"""Count per minute, exactly once: from a topic into a topic.

A row is written when its minute is over: when records more than ten seconds younger have come.

python docs/examples/spark/count_per_minute.py localhost:9092 views views-per-minute /data/checkpoints
"""

import sys

from pyspark.sql import functions as f

from penstock.spark import session, watch, write_stream
from penstock.spark.serde import TEXT, encode, json

bootstrap, source, target, checkpoints = sys.argv[1:5]

spark = session()
views = (
    spark.readStream.format("penstock")
    .option("kafka.bootstrap.servers", bootstrap)
    .option("subscribe", source)
    .option("startingOffsets", "earliest")
    .load()
)
counts = (
    views.withWatermark("timestamp", "10 seconds")
    .groupBy(f.window("timestamp", "1 minute").alias("minute"))
    .count()
    .select(
        f.date_format("minute.start", "yyyy-MM-dd HH:mm").alias("key"),
        f.struct(f.col("minute.start").alias("minute"), "count").alias("value"),
    )
)
query = write_stream(
    encode(counts, key=TEXT, value=json()),
    bootstrap=bootstrap,
    query=target,
    checkpoint=f"{checkpoints}/{target}",
    topic=target,
    trigger={"availableNow": True},  # leave it out, and the query runs until it is stopped
)
watch(query)
