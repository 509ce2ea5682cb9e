"""Write a table into a topic, then go back in time: read what was written since a moment.

python docs/examples/spark/write_table.py localhost:9092 prices
"""

import sys
import time

from penstock.spark import session
from penstock.spark.serde import LONG, TEXT, decode, encode

bootstrap, topic = sys.argv[1:3]

spark = session()
began_ms = int(time.time() * 1000)
prices = spark.createDataFrame([("apple", 120), ("pear", 95), ("plum", 45)], "key STRING, value LONG")
(
    encode(prices, key=TEXT, value=LONG)  # as Kafka's StringSerializer and LongSerializer write them
    .write.format("penstock")
    .option("kafka.bootstrap.servers", bootstrap)
    .option("topic", topic)
    .mode("append")
    .save()
)
written = (
    spark.read.format("penstock")
    .option("kafka.bootstrap.servers", bootstrap)
    .option("subscribe", topic)
    .option("startingTimestamp", began_ms)
    .load()
)
for row in decode(written, key=TEXT, value=LONG).orderBy("key").collect():
    print(f"{row.key}: {row.value}")
