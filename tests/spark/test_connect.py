"""Spark Connect: the same source and the same sink, from a program that talks to a Spark server."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest

from penstock.client.cluster import Cluster
from penstock.client.shared_transaction import SharedTransaction
from tests.spark.conftest import numbers
from tests.support.maven import ROOT
from tests.support.spark_processes import Processes
from tests.support.systems import System, free_port

_READY_S = 120.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Spark Connect server in a process of its own."""
    port = free_port()
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    command = [
        str(submit),
        "--master",
        "local[2]",
        "--class",
        "org.apache.spark.sql.connect.service.SparkConnectServer",
    ]
    for setting in (f"spark.connect.grpc.binding.port={port}", "spark.ui.enabled=false"):
        command += ["--conf", setting]
    running = Processes([*command, "spark-internal"], tmp_path_factory.mktemp("connect") / "server.log")
    try:
        _await_listener(running, port)
        yield f"sc://127.0.0.1:{port}"
    finally:
        running.end()


def _await_listener(running: Processes, port: int) -> None:
    deadline = time.monotonic() + _READY_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            assert running.is_alive, running.log[-4000:]
            assert time.monotonic() < deadline, running.log[-4000:]
            time.sleep(0.2)


def test_a_topic_is_read_and_copied_exactly_once_over_spark_connect(
    system: System,
    server: str,
    topic: str,
    create: Callable[..., str],
    fill: Callable[..., list[int]],
    out: str,
    written: Any,
    tmp_path: Path,
) -> None:
    create()

    def copy() -> str:
        command = [sys.executable, "-m", "tests.spark.connect_client", server, system.bootstrap, topic, out]
        done = subprocess.run(
            [*command, str(tmp_path / "checkpoint")], cwd=ROOT, capture_output=True, text=True, timeout=200, check=False
        )
        assert done.returncode == 0, done.stderr[:4000]
        return done.stdout.strip()

    fill(range(100))
    assert copy() == "100"
    assert numbers(written()) == list(range(100))
    fill(range(100, 130))
    assert copy() == "130"
    assert numbers(written()) == list(range(130))
    with Cluster(system.bootstrap) as cluster:
        told = SharedTransaction(cluster, f"copy-to-{out}").committed(f"copy-to-{out}")
    assert sum(one.offset for one in told.values()) == 130
