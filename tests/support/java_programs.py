"""Small Java programs of ours on Kafka Streams, compiled into `.cache` when they have changed."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support.maven import CACHE, locked, streams_jars


def command(source: Path, *options: str) -> list[str]:
    """What runs the program that a source file holds, with options of the JVM."""
    folder = CACHE / f"java-{source.stem}"
    with locked(folder.name):
        folder.mkdir(parents=True, exist_ok=True)
        marker = folder / ".compiled"
        if not marker.exists() or marker.stat().st_mtime < source.stat().st_mtime:
            _compile(source, folder)
            marker.touch()
    return ["java", *options, "-cp", f"{folder}:{streams_jars()}/*", source.stem]


def _compile(source: Path, folder: Path) -> None:
    arguments = ["javac", "-nowarn", "-d", str(folder), "-cp", f"{streams_jars()}/*", str(source)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"javac failed:\n{done.stderr}")
