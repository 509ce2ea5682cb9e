"""Streams and tables, in the way of thinking of Kafka Streams, in Python, on Spark.

Building: start at `application.py`, then `stream.py`, `grouped.py` and `table.py`, what users call. They record frozen
`nodes.py`; `expressions.py`, `changes.py`, `windows.py`, `processors.py` and `serdes.py` are what nodes are made of,
`places.py` is the user's file and line, `values.py` what bytes are in Python. `topology.py` checks, `pieces.py` cuts
into queries, `describe.py` and `draw.py` show. None of that knows Spark. Asking tables: `stores/`, which needs no Spark
either. Running: `engine/`. `presence.py` says who runs, `shape.py` what an application was when it ran, `resetting.py`
forgets.
Imports the client; `engine` also the pipeline on Spark. Nothing imports it but what people run.
"""

from __future__ import annotations

from penstock.streams.application import Application
from penstock.streams.expressions import Expression, col, fn
from penstock.streams.grouped import CogroupedStream, GroupedStream, GroupedTable
from penstock.streams.places import TopologyError
from penstock.streams.processors import (
    STREAM_TIME,
    WALL_CLOCK,
    Context,
    Processor,
    Record,
    Timer,
    list_state,
    map_state,
    value_state,
)
from penstock.streams.serdes import BYTES, INT, LONG, TEXT, Serde, custom, json, windowed
from penstock.streams.stream import Stream
from penstock.streams.table import GlobalTable, Table
from penstock.streams.topology import Topology
from penstock.streams.windows import hopping, session, sliding, tumbling, within

__all__ = [
    "Application",
    "BYTES",
    "CogroupedStream",
    "Context",
    "Expression",
    "GlobalTable",
    "GroupedStream",
    "GroupedTable",
    "INT",
    "LONG",
    "Processor",
    "Record",
    "STREAM_TIME",
    "Serde",
    "Stream",
    "TEXT",
    "Table",
    "Timer",
    "Topology",
    "TopologyError",
    "WALL_CLOCK",
    "col",
    "custom",
    "fn",
    "hopping",
    "json",
    "list_state",
    "map_state",
    "session",
    "sliding",
    "tumbling",
    "value_state",
    "windowed",
    "within",
]
