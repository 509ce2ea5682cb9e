"""Keep the first of all records that have the same id, as long as they come within an hour.

python docs/examples/spark/deduplicate.py localhost:9092 payments payments-once /data/checkpoints
"""

import sys

from pyspark.sql import functions as f

from penstock.spark import session, watch, write_stream

bootstrap, source, target, checkpoints = sys.argv[1:5]

spark = session()
payments = (
    spark.readStream.format("penstock")
    .option("kafka.bootstrap.servers", bootstrap)
    .option("subscribe", source)
    .option("startingOffsets", "earliest")
    .load()
)
once = (
    payments.withColumn("id", f.get_json_object(f.col("value").cast("string"), "$.id"))
    .withWatermark("timestamp", "1 hour")
    .dropDuplicatesWithinWatermark(["id"])
    .select("key", "value")
)
query = write_stream(
    once,
    bootstrap=bootstrap,
    query=target,
    checkpoint=f"{checkpoints}/{target}",
    topic=target,
    trigger={"availableNow": True},
)
watch(query)
