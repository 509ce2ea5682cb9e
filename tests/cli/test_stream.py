from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock import Admin, Producer
from penstock.streams.presence import Presence
from penstock.streams.shape import QueryShape, Shape, save
from penstock.testing import RunningBroker
from tests.cli.running import Command

_PROGRAM = """
from penstock.streams import TEXT, Application, tumbling

app = Application("{name}", key=TEXT, value=TEXT, state_dir={state!r})
lines = app.stream("{name}-lines")
counts = lines.group_by_key().count(step="counts").store("counts")
counts.to_stream().to("{name}-out")
lines.map_values(lambda line: line.upper(), returns="STRING").group_by_key().window(tumbling("1 minute")).reduce(
    lambda one, other: max(one, other), step="last"
).store("last")
"""


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """A program in a file."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("PYTHONPATH", "")

    def write(text: str) -> str:
        path = tmp_path / "shop.py"
        path.write_text(text)
        return str(path)

    return write


@pytest.fixture
def program(write: Callable[[str], str], tmp_path: Path) -> str:
    return write(_PROGRAM.format(name="shop", state=str(tmp_path / "state")))


# ---- programs ----

_TWO = """
from penstock.streams import TEXT, Application
first, second = Application("first"), Application("second")
number = 5
first.stream("a", key=TEXT, value=TEXT).to("b")
"""


def test_an_application_is_described_without_a_broker(anywhere: Command, program: str) -> None:
    shown = anywhere("stream", "describe", program).out
    assert shown.startswith("Application shop\n\nQuery 0: shop-counts\n")
    assert shown.endswith("Stores\n  counts: shop-counts-changelog\n  last: shop-last-changelog\n")
    told = anywhere.json("stream", "describe", program)
    assert told["queries"]["shop-counts"]["outputs"] == ["shop-out", "shop-counts-changelog"]


def test_describing_needs_no_java(program: str) -> None:
    script = (
        "import sys; from penstock.cli.app import run\n"
        f"assert run(['stream', 'describe', {program!r}]) == 0\n"
        "assert not [name for name in sys.modules if name.startswith(('pyspark', 'pandas', 'pyarrow'))]\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, stdout=subprocess.DEVNULL)


def test_an_application_is_drawn(anywhere: Command, program: str, tmp_path: Path) -> None:
    assert anywhere("stream", "draw", program, "--form", "mermaid").out.startswith("flowchart LR\n")
    picture = tmp_path / "shop.svg"
    assert anywhere("stream", "draw", program, "-o", str(picture)).out == f"wrote {picture}\n"
    assert picture.read_text().startswith("<svg")
    assert "use 'svg' or 'mermaid'" in anywhere.fails("stream", "draw", program, "--form", "png", code=2)


def test_one_of_several_applications_is_named(anywhere: Command, write: Callable[[str], str]) -> None:
    path = write(_TWO)
    assert anywhere("stream", "describe", f"{path}:first").out.startswith("Application first\n")
    assert f"name one, as in {path}:first" in anywhere.fails("stream", "describe", path, code=2)
    assert "has no third" in anywhere.fails("stream", "describe", f"{path}:third", code=2)
    assert "number in" in anywhere.fails("stream", "describe", f"{path}:number", code=2)


@pytest.mark.parametrize(
    ("text", "told", "code"),
    [
        ("x = 1", "has no application: make one at the top of it, as in app = Application('shop')", 2),
        ("x = ", "shop.py:1: invalid syntax", 1),
        ("a = 1\nb = a / 0", "shop.py:2: ZeroDivisionError: division by zero", 1),
        (_TWO + "first.stream()\n", "shop.py:6: stream needs at least one topic", 2),
    ],
    ids=["none", "syntax", "raises", "topology"],
)
def test_a_program_that_cannot_be_is_told_in_a_line(
    anywhere: Command, write: Callable[[str], str], text: str, told: str, code: int
) -> None:
    assert told in anywhere.fails("stream", "describe", write(text), code=code)


def test_a_file_that_is_not_there_is_told(anywhere: Command) -> None:
    assert "there is no file gone.py" in anywhere.fails("stream", "describe", "gone.py", code=2)


# ---- which applications there are ----


def test_applications_that_run_are_told_from_those_that_ended(anywhere: Command, tmp_path: Path) -> None:
    for name in ("ended", "crashed", "alive"):
        save(Shape(name, "localhost:9092", {}), tmp_path / name)
    (tmp_path / "crashed" / "running.json").write_text(
        '{"application": "crashed", "pid": 1, "bootstrap": "", "started_at": 1, "http": null}'
    )
    with Presence.claim(tmp_path / "alive", "alive", "localhost:9092"):
        rows = anywhere.json("stream", "list", "--state-dir", str(tmp_path))
        assert {row["application"]: row["state"] for row in rows} == {
            "alive": "running",
            "crashed": "crashed",
            "ended": "stopped",
        }
        assert next(row["pid"] for row in rows if row["application"] == "alive") == os.getpid()
        told = anywhere.fails("stream", "query", "alive", "totals", "--state-dir", str(tmp_path), code=1)
        assert "alive runs without HTTP" in told
        told = anywhere.fails("stream", "reset", "alive", "--state-dir", str(tmp_path), code=1)
        assert "'penstock stream stop alive' ends it" in told
    assert "crashed is not running" in anywhere.fails("stream", "stop", "crashed", "--state-dir", str(tmp_path), code=1)


def test_an_application_that_nobody_knows_is_told(anywhere: Command, tmp_path: Path) -> None:
    told = anywhere.fails("stream", "query", "shop", "totals", "--state-dir", str(tmp_path), code=1)
    assert "there is no application 'shop' in" in told
    assert "There are no applications in" in anywhere("stream", "list", "--state-dir", str(tmp_path)).err


# ---- resetting ----


def test_only_what_gone_steps_left_can_be_deleted(
    run: Command, broker: RunningBroker, unique: Callable[[str], str], tmp_path: Path
) -> None:
    name = unique("tidy")

    def query(step: str) -> QueryShape:
        return QueryShape(step, "x.py:1", {}, [["in"]], ["out"], [f"{name}-{step}-changelog"])

    queries, gone = {f"{name}-a": query("a")}, {f"{name}-b": query("b")}
    save(Shape(name, broker.bootstrap, queries, gone), tmp_path / name)
    with Admin(broker.bootstrap) as admin:
        for one in "ab":
            (tmp_path / name / f"{name}-{one}").mkdir()
            admin.create_topic(f"{name}-{one}-changelog")
        told = run.json("stream", "reset", name, "--state-dir", str(tmp_path), "--gone", "--dry-run")
        assert (told["executed"], told["topics"]) == (False, [f"{name}-b-changelog"])
        run("stream", "reset", name, "--state-dir", str(tmp_path), "--gone", "--yes")
        assert f"{name}-a-changelog" in admin.list_topics()
        assert f"{name}-b-changelog" not in admin.list_topics()
    assert sorted(one.name for one in (tmp_path / name).iterdir()) == [f"{name}-a", "topology.json"]
    told = run.run("stream", "reset", name, "--state-dir", str(tmp_path), "--gone", "--yes").err
    assert "There is nothing to delete." in told


# ---- all of it ----


@contextmanager
def _running(*arguments: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "penstock.cli.main", "stream", "run", *arguments], stdout=file, stderr=file
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
            process.wait(60)


def _wait_until(is_so: Callable[[], bool], log: Path) -> None:
    deadline = time.monotonic() + 120
    while not is_so():
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.2)


def _send(broker: RunningBroker, topic: str, *records: tuple[str, str]) -> None:
    with Producer(broker.bootstrap) as producer:
        for key, value in records:
            producer.send(topic, value, key=key, timestamp=1000)


def test_an_application_runs_is_asked_stopped_and_reset(
    run: Command, broker: RunningBroker, unique: Callable[[str], str], write: Callable[[str], str], tmp_path: Path
) -> None:
    name = unique("cycle")
    program = write(_PROGRAM.format(name=name, state=str(tmp_path / "state")))
    here, log = ("--state-dir", str(tmp_path / "state")), tmp_path / "log"
    with Admin(broker.bootstrap) as admin:
        for topic in (f"{name}-lines", f"{name}-out"):
            admin.create_topic(topic, config={"retention.ms": "-1"})
    _send(broker, f"{name}-lines", ("a", "x"), ("a", "y"), ("b c", "z"))

    def counted(key: str) -> int | None:
        result = run.run("stream", "query", name, "counts", key, "--json", *here)
        rows = json.loads(result.out)["rows"] if result.code == 0 else []
        return rows[0]["value"] if rows else None

    options = (program, "--bootstrap", broker.bootstrap, "--master", "local[2]", "--interval", "0.5")
    with _running(*options, log=log) as process:
        _wait_until(lambda: counted("a") == 2, log)
        (listed,) = run.json("stream", "list", *here)
        assert (listed["application"], listed["state"]) == (name, "running")
        shown = run("stream", "query", name, "counts", *here)
        assert [line.split() for line in shown.lines[2:]] == [["a", "2"], ["b", "c", "1"]]
        assert "0 records behind as of" in shown.err
        _wait_until(lambda: run.json("stream", "query", name, "last", *here)["rows"] != [], log)
        (window,) = run.json("stream", "query", name, "last", "a", "--start", "0", "--end", "0", *here)["rows"]
        assert (window["key"], window["value"]) == ({"key": "a", "start": 0, "end": 60_000}, "Y")
        assert {row["name"] for row in run.json("stream", "query", program)} == {"counts", "last"}
        assert "there is no store 'x'" in run.fails("stream", "query", name, "x", *here, code=1)
        assert "is running" in run.fails("stream", "reset", program, "--yes", code=1)
        with _running(*options, log=tmp_path / "second") as second:
            assert second.wait(120) == 2
        assert f"application {name} runs as process" in (tmp_path / "second").read_text()
        assert f"{name} has stopped" in run("stream", "stop", name, *here).out
        assert process.wait(60) == 0
    assert f"{name}-counts: batch 0, 3 rows in" in log.read_text()

    told = run.json("stream", "reset", name, "--dry-run", *here)
    assert set(told["topics"]) == {f"{name}-counts-changelog", f"{name}-last-changelog"}
    assert {f"{name}-counts", f"{name}-counts.batches"} <= set(told["groups"])
    assert "Say so with --yes" in run.run("stream", "reset", name, *here).err
    told = run("stream", "reset", name, "--yes", *here).err
    assert f"Topics it writes for others are left as they are: {name}-out." in told
    with Admin(broker.bootstrap) as admin:
        assert [topic for topic in admin.list_topics() if topic.startswith(name)] == [f"{name}-lines", f"{name}-out"]
    assert run.json("stream", "list", *here) == []

    _send(broker, f"{name}-lines", ("a", "x"))
    with _running(*options, log=log) as process:
        _wait_until(lambda: counted("a") == 3, log)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert f"{name} has stopped; it goes on from here" in log.read_text()
