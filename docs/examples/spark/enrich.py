"""Add to each record of a stream what a compacted topic knows of its key.

The table is read again for each micro-batch, so a profile that changes counts from the next batch on. A record without
a value (a tombstone) takes its key out of the table.

python docs/examples/spark/enrich.py localhost:9092 views profiles views-with-country /data/checkpoints
"""

import sys

from pyspark.sql import functions as f

from penstock.spark import session, watch, write_stream
from penstock.spark.serde import json

bootstrap, stream, table, target, checkpoints = sys.argv[1:6]

spark = session()
views = (
    spark.readStream.format("penstock")
    .option("kafka.bootstrap.servers", bootstrap)
    .option("subscribe", stream)
    .option("startingOffsets", "earliest")
    .load()
)
records = spark.read.format("penstock").option("kafka.bootstrap.servers", bootstrap).option("subscribe", table).load()
profiles = (
    records.groupBy("key")
    .agg(f.max_by("value", "offset").alias("profile"))  # the last one of each key
    .filter("profile is not null")
    .select("key", json("country STRING").read(f.col("profile")).country.alias("country"))
)
enriched = views.join(profiles, "key", "left").select(
    "key", f.to_json(f.struct(f.col("value").cast("string").alias("view"), "country")).alias("value")
)
query = write_stream(
    enriched,
    bootstrap=bootstrap,
    query=target,
    checkpoint=f"{checkpoints}/{target}",
    topic=target,
    trigger={"availableNow": True},
)
watch(query)
