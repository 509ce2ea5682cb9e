"""The pipeline on Spark: topics as DataFrames, in both directions, with no connector jar.

Reading: start at `source.py`, what Spark calls. `options.py`, `ranges.py` and `pruning.py` say what the user asked for
and which offsets that means; `planning.py` asks the brokers; `reading.py` is what a task does: fetch, and lay out
records as Arrow columns. Writing: `sink.py` is streaming, exactly once or at least once, `batch_sink.py` a plain write;
`rows.py` and `placing.py` say what rows must look like and where they go, `writing.py` is what a task does, and
`turns.py` how tasks that write as one producer agree on an order. `serde.py` says what keys and values mean,
`query_progress.py` how a query is doing, and `group_offsets.py` tells a consumer group.
Speaks the wire protocol only, so it works with any Kafka.
Imports the client and the wire; nothing imports it but what runs on Spark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from penstock.spark.session import session
from penstock.spark.sink import write_stream

if TYPE_CHECKING:
    from penstock.spark.query_progress import Progress, progress, serve_metrics, watch

__all__ = ["Progress", "progress", "serve_metrics", "session", "watch", "write_stream"]


def __getattr__(name: str) -> Any:
    """What only people look at is loaded when it is used: this is imported in every process that runs tasks."""
    if name not in ("Progress", "progress", "serve_metrics", "watch"):
        raise AttributeError(f"module 'penstock.spark' has no attribute {name!r}")
    return getattr(import_module("penstock.spark.query_progress"), name)
