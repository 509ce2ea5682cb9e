"""Members of groups that are written in Go and JavaScript. Built into `.cache` where the tools for it are there."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

from tests.support.maven import CACHE, locked
from tests.support.readers import Got, Ledger, Reader

_SOURCES = Path(__file__).parent


def missing_tool(language: str) -> str | None:
    """The tool that a language needs and that is not here."""
    needed = {"go": ["go"], "node": ["node", "npm"]}[language]
    return next((tool for tool in needed if shutil.which(tool) is None), None)


@cache
def program(language: str, name: str) -> tuple[str, ...]:
    """The command that starts a member; the program is built when its sources have changed."""
    source = _SOURCES / language / name
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in sorted(source.iterdir()))).hexdigest()[:16]
    built = CACHE / language / f"{name}-{digest}"
    built.parent.mkdir(parents=True, exist_ok=True)
    with locked(f"{language}-{name}"):
        if not built.exists():
            partial = built.with_suffix(".partial")
            if language == "go":
                _run(source, "go", "build", "-mod=readonly", "-o", str(partial), ".")
            else:
                shutil.rmtree(partial, ignore_errors=True)
                shutil.copytree(source, partial)
                _run(partial, "npm", "ci", "--no-audit", "--no-fund", "--silent")
            partial.rename(built)
    return (str(built),) if language == "go" else ("node", str(built / "main.js"))


def _run(folder: Path, *command: str) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")


class ForeignReader(Reader):
    """A member in a process of its own, which tells by lines of JSON what happens to it."""

    def __init__(self, bootstrap: str, group: str, topics: list[str], ledger: Ledger, name: str, **config: Any) -> None:
        super().__init__(bootstrap, group, topics, ledger, name, **config)
        (self._topic,) = topics
        command = [*program(config["language"], config["program"]), bootstrap, group, self._topic, config["protocol"]]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        super().stop()

    def _run(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            event = json.loads(line)
            partitions = [(self._topic, index) for index in event.get("partitions") or []]
            match event["event"]:
                case "assigned":
                    self.ledger.take(self.name, partitions, event["at"])
                case "revoked":
                    self.ledger.give_up(self.name, partitions, event["at"])
                case "record":
                    got = Got(self._topic, event["partition"], event["offset"], event["value"].encode())
                    self.received.append(got)
        if (code := self._process.wait(30)) != 0:
            raise RuntimeError(f"{self.name} ended with code {code}")
