"""Real Kafka Streams: one JVM that runs named topologies in its TopologyTestDriver."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from penstock.testing.streams import Output
from tests.support import java_programs

_SOURCE = Path(__file__).parent / "java" / "StreamsOracle.java"


@dataclass(frozen=True)
class Input:
    """A record to put in."""

    topic: str
    key: str | None
    value: str | None
    timestamp: int


class KafkaStreams:
    """The resident JVM."""

    def __init__(self) -> None:
        command = java_programs.command(_SOURCE, "-Xmx256m", "-XX:+UseSerialGC")
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
