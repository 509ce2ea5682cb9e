"""Spark's own Kafka connector, the oracle of ours: a Spark in a virtual environment of its own, and the jars.

Made once in `.cache`. The connector is not published for the Spark that Penstock runs on, hence the older one.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
from functools import cache
from pathlib import Path
from typing import Any

from tests.support.maven import CACHE, jar, locked

SPARK_VERSION = "4.2.0"
_JARS = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", SPARK_VERSION),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    ("org.apache.kafka", "kafka-clients", "3.9.2"),
    ("org.apache.commons", "commons-pool2", "2.12.1"),
)


class NotAvailable(Exception):
    """The connector cannot be had: there is no network, or the package is not there."""


@cache
def python() -> Path:
    """The interpreter that has the older Spark."""
    folder = CACHE / f"pyspark-{SPARK_VERSION}"
    ready = folder / ".ready"
    with locked(folder.name):
        if not ready.exists():
            shutil.rmtree(folder, ignore_errors=True)
            venv.create(folder, symlinks=True)
            _install(folder)
            ready.touch()
    return folder / "bin" / "python"


def _install(folder: Path) -> None:
    """With the pip and the setuptools that are here: to fetch them once more takes longer."""
    command = [sys.executable, "-m", "pip", f"--python={folder}", "install", "--quiet", "--no-compile"]
    command += ["--disable-pip-version-check", "--no-cache-dir"]
    done = subprocess.run([*command, f"pyspark=={SPARK_VERSION}"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotAvailable(f"pyspark {SPARK_VERSION} cannot be installed: {done.stderr.strip().splitlines()[-1]}")


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
