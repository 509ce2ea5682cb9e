"""Look into a topic: read it as a table, take the values apart, ask questions.

python docs/examples/spark/read_topic.py localhost:9092 views
"""

import sys

from penstock.spark import session
from penstock.spark.serde import TEXT, decode, json

bootstrap, topic = sys.argv[1:3]

spark = session()
views = (
    spark.read.format("penstock")
    .option("kafka.bootstrap.servers", bootstrap)
    .option("subscribe", topic)
    .load()
    .filter("partition = 0")  # only this partition is fetched
)
rows = decode(views, key=TEXT, value=json("page STRING, ms INT")).select("key", "value.*", "timestamp")

for row in rows.groupBy("page").agg({"ms": "max", "*": "count"}).orderBy("page").collect():
    print(f"{row.page}: {row['count(1)']} views, the slowest took {row['max(ms)']} ms")
