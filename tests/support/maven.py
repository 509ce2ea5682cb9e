"""Real Kafka from Maven: downloaded once into `.cache`, never committed."""

from __future__ import annotations

import fcntl
import json
import re
import shutil
import subprocess
import zipfile
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache"
POM = Path(__file__).with_name("pom.xml")
STREAMS_POM = ROOT / "tests" / "oracle" / "pom.xml"

KAFKA_VERSION = "4.3.1"
OLD_CLIENTS_VERSION = "3.9.1"  # the last release whose message definitions still have the versions that 4.0 dropped


@contextmanager
def locked(name: str) -> Any:
    """Only one process at a time fills this part of the cache."""
    CACHE.mkdir(exist_ok=True)
    with open(CACHE / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _maven(*arguments: str) -> None:
    done = subprocess.run(["mvn", "-q", "-B", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"mvn {' '.join(arguments)} failed:\n{done.stdout}{done.stderr}")


@cache
def kafka_jars() -> Path:
    """The folder with the jars of Kafka's broker, client and tools."""
    return _dependencies(POM, f"kafka-{KAFKA_VERSION}")


@cache
def streams_jars() -> Path:
    """The folder with the jars of Kafka Streams and its test driver."""
    return _dependencies(STREAMS_POM, f"kafka-streams-{KAFKA_VERSION}")


def _dependencies(pom: Path, name: str) -> Path:
    """The folder with all jars that a pom names."""
    folder = CACHE / name
    with locked(name):
        if not folder.exists():
            partial = CACHE / f"{name}.partial"
            shutil.rmtree(partial, ignore_errors=True)
            _maven("-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={partial}")
            partial.rename(folder)
    return folder


@cache
def jar(group: str, name: str, version: str) -> Path:
    """One jar, without what it needs."""
    path = CACHE / f"{name}-{version}.jar"
    with locked(path.name):
        if not path.exists():
            artifact = f"{group}:{name}:{version}"
            _maven("dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={CACHE}")
    return path


def old_clients_jar() -> Path:
    """An older client jar, for its message definitions."""
    return jar("org.apache.kafka", "kafka-clients", OLD_CLIENTS_VERSION)


def classpath() -> str:
    return f"{kafka_jars()}/*"


def _parse_definition(text: str) -> dict[str, Any]:
    """Kafka's message definitions are JSON with // comments on lines of their own or behind a value."""
    text = re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE)
    text = re.sub(r'(?<=[,\[\]{}"])\s*//[^"\n]*$', "", text, flags=re.MULTILINE)
    definition: dict[str, Any] = json.loads(text)
    return definition


def definitions(jar: Path, folder: str) -> dict[str, dict[str, Any]]:
    """The message definitions in a jar's folder, by message name."""
    with zipfile.ZipFile(jar) as archive:
        names = [name for name in archive.namelist() if name.startswith(folder) and name.endswith(".json")]
        parsed = [_parse_definition(archive.read(name).decode()) for name in names]
    return {definition["name"]: definition for definition in parsed}
