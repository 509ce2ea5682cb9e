"""Spark's own Kafka connector, the oracle of ours: a Spark in a virtual environment of its own, and the jars.

Made once in `.cache`. The connector is not published for the Spark that Penstock runs on, hence the older one.
"""

from __future__ import annotations

import json
import os
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

from tests.support import environments
from tests.support.environments import NotAvailable
from tests.support.maven import jar

SPARK_VERSION = "4.2.0"
_JARS = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", SPARK_VERSION),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    ("org.apache.kafka", "kafka-clients", "3.9.2"),
    ("org.apache.commons", "commons-pool2", "2.12.1"),
)


def python() -> Path:
    """The interpreter that has the older Spark."""
    return environments.python(f"pyspark-{SPARK_VERSION}", f"pyspark=={SPARK_VERSION}")


@cache
def jars() -> list[Path]:
    try:
        return [jar(*one) for one in _JARS]
    except RuntimeError as error:
        raise NotAvailable(f"the jars of Spark's connector cannot be fetched: {error}") from error


def environment() -> dict[str, str]:
    """For a process with the older Spark: nothing of the Spark that this one has."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))}
    return {**kept, "SPARK_LOCAL_IP": "127.0.0.1"}


def read(reads: dict[str, Any]) -> dict[str, Any]:
    """What Spark's own connector reads, all in one process."""
    script = Path(__file__).with_name("connector_reads.py")
    command = [str(python()), str(script), ",".join(map(str, jars()))]
    done = subprocess.run(
        command, input=json.dumps(reads), capture_output=True, text=True, check=False, env=environment()
    )
    if done.returncode:
        raise RuntimeError(f"Spark's own connector failed:\n{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
