"""What a user sees on the console when something fails: the error, and no stack trace of the JVM before it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

from penstock import Admin
from tests.support.systems import System

PROGRAM = """
import sys
from penstock.spark import session
topic = session("local[1]").read.format("penstock").option("kafka.bootstrap.servers", sys.argv[1])
topic.options(subscribe=sys.argv[2], startingOffsets='{"%s": {"0": 2}}' % sys.argv[2]).load().count()
"""


def test_a_task_that_fails_is_told_once_by_its_error(
    system: System, topic: str, create: Callable[..., str], fill: Callable[..., list[int]]
) -> None:
    create(partitions=1)
    fill(range(10), partitions=1)
    with Admin(system.bootstrap) as admin:
        admin.delete_records({(topic, 0): 5})
    command = [sys.executable, "-c", PROGRAM, system.bootstrap, topic]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert done.stderr.count("offset 2 is not there any more") == 1
    assert done.stderr.splitlines()[-1].startswith("penstock.spark.ranges.DataLoss: ")
    assert "\tat org.apache.spark" not in done.stderr
