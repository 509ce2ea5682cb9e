"""Small Java programs of ours, compiled into `.cache` when they have changed."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.support.maven import CACHE, locked, streams_jars


def compiled(name: str, sources: Sequence[Path], classpath: str) -> Path:
    """The folder with what sources are compiled to."""
    folder = CACHE / name
    with locked(name):
        folder.mkdir(parents=True, exist_ok=True)
        marker = folder / ".compiled"
        newest = max(source.stat().st_mtime for source in sources)
        if not marker.exists() or marker.stat().st_mtime < newest:
            command = ["javac", "-nowarn", "-d", str(folder), "-cp", classpath, *map(str, sources)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise RuntimeError(f"javac failed:\n{done.stderr}")
            marker.touch()
    return folder


def command(source: Path, *options: str) -> list[str]:
    """What runs a program on Kafka Streams, with options of the JVM."""
    jars = f"{streams_jars()}/*"
    return ["java", *options, "-cp", f"{compiled(f'java-{source.stem}', [source], jars)}:{jars}", source.stem]
