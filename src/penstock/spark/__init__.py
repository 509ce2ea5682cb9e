"""The pipeline on Spark: topics as DataFrames, in both directions, with no connector jar.

Reading: start at `source.py`, what Spark calls. `options.py`, `ranges.py` and `pruning.py` say what the user asked for
and which offsets that means; `planning.py` asks the brokers; `reading.py` is what a task does: fetch, and lay out
records as Arrow columns. Writing: `sink.py` is streaming, exactly once or at least once, `batch_sink.py` a plain write;
`rows.py` and `placing.py` say what rows must look like and where they go, `writing.py` is what a task does, with
`encoding.py` and, at the same time, `sending.py`; `turns.py` is how tasks that write as one producer agree on an order,
and `checkpoints.py` reads what Spark has written down.
`serde.py` says what keys and values mean, `query_progress.py` how a query is doing, and `group_offsets.py` tells a
consumer group. `session.py` makes a session, and `standby.py` lets its queries start sooner.
Speaks the wire protocol only, so it works with any Kafka.
Imports the client and the wire; nothing imports it but what runs on Spark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from penstock.spark.session import session

if TYPE_CHECKING:
    from penstock.spark.query_progress import Progress, progress, serve_metrics, watch
    from penstock.spark.sink import write_stream

__all__ = ["Progress", "progress", "serve_metrics", "session", "watch", "write_stream"]

_HOMES = {
    "write_stream": "penstock.spark.sink",
    **dict.fromkeys(("Progress", "progress", "serve_metrics", "watch"), "penstock.spark.query_progress"),
}


def __getattr__(name: str) -> Any:
    """Loaded when it is used: this package is imported in every process that Spark starts for a source or a task."""
    if name not in _HOMES:
        raise AttributeError(f"module 'penstock.spark' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
