"""Kafka's own Java clients and command-line tools, run inside one resident JVM."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.support import java_programs
from tests.support.maven import classpath

_SOURCES = Path(__file__).with_name("java")


@cache
def compiled() -> Path:
    """The folder with our Java helpers, compiled if they changed."""
    return java_programs.compiled("java", sorted(_SOURCES.glob("*.java")), classpath())


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[Any]:
        """The output as lines of JSON."""
        return [json.loads(line) for line in self.out.splitlines() if line.startswith("{")]


class JavaTools:
    """A resident JVM."""

    def __init__(self) -> None:
        command = ["java", "-Xmx512m", "-XX:+UseSerialGC", "-cp", f"{compiled()}:{classpath()}", "ToolServer"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def run(self, main: str, *args: str, stdin: str = "") -> Result:
        """Run a tool's main class and wait for it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"main": main, "args": list(args), "stdin": stdin}) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the JVM ended while it ran {main}")
        return Result(**json.loads(answer))

    def tool(self, name: str, *args: str, stdin: str = "") -> Result:
        """Run one of Kafka's command-line tools by its class name; it must succeed."""
        package = "kafka.admin" if name == "ConfigCommand" else "org.apache.kafka.tools"
        result = self.run(f"{package}.{name}", *args, stdin=stdin)
        assert result.code == 0, f"{name} {' '.join(args)} failed ({result.code}):\n{result.out}\n{result.err}"
        return result

    def produce(self, config: dict[str, Any], records: list[dict[str, Any]]) -> list[Any]:
        return self.run("Client", "produce", json.dumps({"config": config, "records": records})).lines

    def consume(self, config: dict[str, Any], **task: Any) -> list[Any]:
        return self.run("Client", "consume", json.dumps({"config": config, **task})).lines

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)


def rows(output: str) -> list[dict[str, str]]:
    """The table that a tool printed, by column."""
    lines = [line for line in output.splitlines() if line.strip()]
    start = next(n for n, line in enumerate(lines) if line.startswith("GROUP"))
    heads = re.split(r"\s{2,}|\s(?=[A-Z#])", lines[start].strip())
    heads = [head.strip() for head in heads if head.strip()]
    return [dict(zip(heads, line.split(), strict=False)) for line in lines[start + 1 :]]
