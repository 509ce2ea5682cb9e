"""A Spark session with what a pipeline here needs."""

from __future__ import annotations

import os
import sys
from typing import Any

from pyspark.sql import SparkSession

_DEFAULTS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "8",
}
_LOCAL_DEFAULTS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
}


def session(master: str = "local[*]", *, app: str = "penstock", **config: Any) -> SparkSession:
    """A Spark session: on this machine by default, on any master, or on a Spark Connect server ("sc://host:port").

    Settings are Spark's, with underscores for dots: `session(spark_sql_shuffle_partitions=4)`. Tasks run with the
    interpreter that runs this.
    """
    given = {name.replace("_", ".") if "." not in name else name: str(value) for name, value in config.items()}
    if master.startswith("sc://"):
        return _configured(SparkSession.builder.appName(app).remote(master), given)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    local = _LOCAL_DEFAULTS if master.startswith("local") else {}
    return _configured(SparkSession.builder.appName(app).master(master), {**_DEFAULTS, **local, **given})


def _configured(builder: Any, settings: dict[str, str]) -> SparkSession:
    for name, value in settings.items():
        builder = builder.config(name, value)
    made: SparkSession = builder.getOrCreate()
    return made
