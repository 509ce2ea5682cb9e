"""docs/streams-in-ten-minutes.md: its programs and commands do what it says."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.streams import Application
from penstock.testing.brokers import RunningBroker, broker

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "streams-in-ten-minutes.md").read_text()
PROGRAMS = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", PAGE, re.DOTALL))
COMMANDS = [line for text in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in text.splitlines()]

Shell = Callable[[str], str]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the page's programs in it."""
    for name, text in PROGRAMS.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "shop", raising=False)
    return tmp_path


@pytest.fixture
def cluster() -> Iterator[RunningBroker]:
    with broker() as running:
        yield running


@pytest.fixture
def shell(folder: Path, cluster: RunningBroker) -> Shell:
    """Runs a command that is on the page, or refuses to."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    env = {**os.environ, "PENSTOCK_BOOTSTRAP": cluster.bootstrap, "PATH": path}

    def shell(command: str) -> str:
        assert command in COMMANDS
        return subprocess.run(
            command, shell=True, cwd=folder, env=env, check=True, capture_output=True, text=True
        ).stdout

    return shell


def test_the_commands(spark: Any, folder: Path, cluster: RunningBroker, shell: Shell) -> None:
    shell("penstock topic create orders payments paid")
    assert "Processor: paid (inner, within 1 minute" in shell("penstock stream describe shop.py")
    app: Application = runpy.run_path("shop.py")["app"]
    with app.run(cluster.bootstrap, spark=spark):
        for start in ('echo \'o1={"customer"', 'echo \'o1={"method"'):
            shell(next(line for line in COMMANDS if line.startswith(start)))
        shown = COMMANDS[COMMANDS.index(r"penstock consume paid --format '%k: %s\n'") + 1].removeprefix("# ")
        _wait_for(shell, r"penstock consume paid --format '%k: %s\n'", shown)
        answer = _wait_for(shell, "penstock stream query shop totals anna", "12.50")
        assert answer.split()[:5] == ["KEY", "START", "END", "TOTAL", "ORDERS"]


def _wait_for(shell: Shell, command: str, text: str) -> str:
    deadline = time.monotonic() + 120
    while text not in (found := shell(command)):
        assert time.monotonic() < deadline, found
    return found


def test_the_test(spark: Any, folder: Path) -> None:
    runpy.run_path("test_shop.py")["test_shop"]()


def test_pictures_and_links_are_there() -> None:
    links = re.findall(r"\]\(([^)#]+)", PAGE)
    assert len([link for link in links if link.endswith(".svg")]) == 4
    assert all((DOCS / link).exists() for link in links)
