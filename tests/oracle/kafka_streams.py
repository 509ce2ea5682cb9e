"""Real Kafka Streams: one JVM that runs named topologies in its TopologyTestDriver."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from penstock.testing.streams import Output
from tests.support.maven import CACHE, streams_jars

_SOURCE = Path(__file__).parent / "java" / "StreamsOracle.java"


@dataclass(frozen=True)
class Input:
    """A record to put in."""

    topic: str
    key: str | None
    value: str | None
    timestamp: int


@cache
def _compiled() -> Path:
    folder = CACHE / "streams-oracle"
    folder.mkdir(parents=True, exist_ok=True)
    marker = folder / ".compiled"
    if not marker.exists() or marker.stat().st_mtime < _SOURCE.stat().st_mtime:
        command = ["javac", "-nowarn", "-d", str(folder), "-cp", f"{streams_jars()}/*", str(_SOURCE)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"javac failed:\n{done.stderr}")
        marker.touch()
    return folder


class KafkaStreams:
    """The resident JVM."""

    def __init__(self) -> None:
        command = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-cp", f"{_compiled()}:{streams_jars()}/*", "StreamsOracle"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, topology: str, records: Iterable[Input]) -> list[Output]:
        """What a topology makes of records."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        tasks: list[dict[str, Any]] = [{"topology": topology}, *map(asdict, records), {"end": True}]
        self._process.stdin.write("".join(json.dumps(task) + "\n" for task in tasks))
        self._process.stdin.flush()
        outputs = []
        while line := self._process.stdout.readline():
            if not line.strip():
                return outputs
            outputs.append(Output(**json.loads(line)))
        raise RuntimeError(f"the JVM ended while it ran {topology}")

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)
