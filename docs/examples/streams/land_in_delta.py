"""Land what an application writes in a Delta table, each record once; with `pip install deltalake`, without a jar.

Every micro-batch is one commit of the table, which holds the batch's number as well. A batch that is run again after a
crash finds its number there, and is left out. Run `joins.py` first, or name a topic of your own.

python docs/examples/streams/land_in_delta.py localhost:9092 paid-orders ./landed/orders-delta
"""

import sys

from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from penstock.spark import session, watch
from penstock.spark.serde import TEXT, decode, json

bootstrap, topic, table = sys.argv[1:4]
name = f"{topic}-landing"  # of this query in the table: each that writes there needs its own

spark = session()
records = (
    spark.readStream.format("penstock")
    .option("kafka.bootstrap.servers", bootstrap)
    .option("subscribe", topic)
    .option("startingOffsets", "earliest")
    .option("kafka.isolation.level", "read_committed")  # only what the application has committed
    .option("maxOffsetsPerTrigger", 1_000_000)  # a micro-batch goes through the memory of this program
    .load()
)
orders = decode(records, key=TEXT, value=json("customer STRING, amount DOUBLE, method STRING"))


def land(batch, number):
    """Append a micro-batch, unless it is there."""
    last = DeltaTable(table).transaction_version(name) if DeltaTable.is_deltatable(table) else None
    if last is None or number > last:
        commit = CommitProperties(app_transactions=[Transaction(name, number)])
        write_deltalake(table, batch.toArrow(), mode="append", commit_properties=commit)


query = (
    orders.selectExpr("key AS id", "value.*", "timestamp")
    .writeStream.foreachBatch(land)
    .option("checkpointLocation", f"{table}-checkpoint")
    .trigger(availableNow=True)  # leave it out, and the query runs until it is stopped
    .start()
)
watch(query)
print(f"orders in the table: {DeltaTable(table).to_pyarrow_table().num_rows}")
