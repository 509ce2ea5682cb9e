"""The pipeline on Spark: topics as DataFrames, in both directions, with no connector jar.

Reading: start at `source.py`, what Spark calls. `options.py`, `ranges.py` and `pruning.py` say what the user asked for
and which offsets that means; `planning.py` asks the brokers; `reading.py` is what a task does: fetch, and lay out
records as Arrow columns. Writing: `sink.py` is streaming, exactly once or at least once, `batch_sink.py` a plain write;
`rows.py` and `placing.py` say what rows must look like and where they go, `writing.py` is what a task does.
`progress.py` tells a group how far a query is. Speaks the wire protocol only, so it works with any Kafka.
Imports the client and the wire; nothing imports it but what runs on Spark.
"""

from penstock.spark.session import session
from penstock.spark.sink import write_stream

__all__ = ["session", "write_stream"]
