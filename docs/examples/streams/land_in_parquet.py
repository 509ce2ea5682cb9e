"""Land what an application writes in Parquet files, each record once.

Every micro-batch has a folder of its own, by its number. A batch that is run again after a crash has the same records,
and replaces its folder: nothing is there twice. Run `joins.py` first, or name a topic of your own.

python docs/examples/streams/land_in_parquet.py localhost:9092 paid-orders ./landed/orders
"""

import sys

from penstock.spark import session, watch
from penstock.spark.serde import TEXT, decode, json

bootstrap, topic, table = sys.argv[1:4]

spark = session()
records = (
    spark.readStream.format("penstock")
    .option("kafka.bootstrap.servers", bootstrap)
    .option("subscribe", topic)
    .option("startingOffsets", "earliest")
    .option("kafka.isolation.level", "read_committed")  # only what the application has committed
    .load()
)
orders = decode(records, key=TEXT, value=json("customer STRING, amount DOUBLE, method STRING"))


def land(batch, number):
    """Write a micro-batch; over what is there of it."""
    batch.write.mode("overwrite").parquet(f"{table}/batch={number}")


query = (
    orders.selectExpr("key AS id", "value.*", "timestamp")
    .writeStream.foreachBatch(land)
    .option("checkpointLocation", f"{table}-checkpoint")
    .trigger(availableNow=True)  # leave it out, and the query runs until it is stopped
    .start()
)
watch(query)
print(f"orders in the table: {spark.read.parquet(table).count()}")
