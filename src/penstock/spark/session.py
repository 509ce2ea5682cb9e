"""A Spark session with what a pipeline here needs."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from penstock.spark import standby

_DEFAULTS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "8",
    "spark.python.unix.domain.socket.enabled": "true",  # between the JVM and its Python processes
}
# A collector for throughput: rows are short-lived. And Arrow need not check the bounds at every access to a value.
_JAVA = "-XX:+UseParallelGC -Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")
_TASK_PYTHON = Path(__file__).with_name("task_python")
_LOCAL_DEFAULTS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    # The default starts six processes for each file of a checkpoint, to learn of links and rights: about 50 ms.
    "spark.sql.streaming.checkpointFileManagerClass": "org.apache.spark.sql.execution.streaming.checkpointing"
    ".FileSystemBasedCheckpointFileManager",
}


def session(
    master: str = "local[*]", *, app: str = "penstock", log_level: str = "ERROR", **config: Any
) -> SparkSession:
    """A Spark session: on this machine by default, on any master, or on a Spark Connect server ("sc://host:port").

    Settings are Spark's, with underscores for dots: `session(spark_sql_shuffle_partitions=4)`. Tasks run with the
    interpreter that runs this. Of what Spark has to say, errors are shown; `log_level` asks for more.
    """
    given = {name.replace("_", "."): str(value) for name, value in config.items()}
    if master.startswith("sc://"):
        return _configured(SparkSession.builder.appName(app).remote(master), given)
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        os.environ.setdefault(name, _task_python(master))
    settings = {
        **_DEFAULTS,
        "spark.log.level": log_level,
        "spark.driver.extraJavaOptions": _java_options(log_level),
        "spark.executor.extraJavaOptions": _JAVA,
    }
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        settings |= _LOCAL_DEFAULTS
    return _configured(SparkSession.builder.appName(app).master(master), {**settings, **given})


def _task_python(master: str) -> str:
    """The interpreter that runs this. On this machine, with the Spark that is installed with it, it starts faster."""
    if not master.startswith("local") or "SPARK_HOME" in os.environ or os.name != "posix":
        return sys.executable
    os.environ["PENSTOCK_PYTHON"] = sys.executable
    if SparkSession.getActiveSession() is None:  # else the JVM has its environment already
        standby.start(sys.executable)
    return str(_TASK_PYTHON)


def _java_options(log_level: str) -> str:
    options = f"{_JAVA} -Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()}"
    return options if log_level in ("ERROR", "OFF") else f"{options} -Dpenstock.failures={log_level}"


def _configured(builder: Any, settings: dict[str, str]) -> SparkSession:
    for name, value in settings.items():
        builder = builder.config(name, value)
    made: SparkSession = builder.getOrCreate()
    return made
