"""Keep what comes in a Parquet table, by day. Any format that Spark writes will do.

The group shows how far the table is: `penstock group lag views-table`.

python docs/examples/spark/land_in_parquet.py localhost:9092 views /data/views /data/checkpoints
"""

import sys

from pyspark.sql import functions as f

from penstock.spark import session, watch
from penstock.spark.serde import TEXT, decode, json

bootstrap, topic, table, checkpoints = sys.argv[1:5]

spark = session()
views = (
    spark.readStream.format("penstock")
    .option("kafka.bootstrap.servers", bootstrap)
    .option("subscribe", topic)
    .option("startingOffsets", "earliest")
    .option("group", "views-table")
    .load()
)
rows = decode(views, key=TEXT, value=json("page STRING, ms INT"))
query = (
    rows.select(f.col("key").alias("user"), "value.*", "timestamp", f.to_date("timestamp").alias("day"))
    .writeStream.format("parquet")
    .partitionBy("day")
    .option("path", table)
    .option("checkpointLocation", f"{checkpoints}/views-table")
    .trigger(availableNow=True)
    .start()
)
watch(query)
print(f"{spark.read.parquet(table).count()} rows in the table")
