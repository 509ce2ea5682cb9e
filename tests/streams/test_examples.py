"""The examples of docs/streams.md do what they say."""

from __future__ import annotations

import ast
import json
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import Admin, Consumer, Producer
from penstock.cli import programs
from penstock.streams import TopologyError
from penstock.testing.brokers import RunningBroker, broker

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples" / "streams"
MINUTE = 60_000

Sent = tuple[str | None, Any, int]


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningBroker]:
    with broker() as running:
        yield running


class Place:
    """Where an example runs: a broker with its topics, a folder of its own, and the session that is there."""

    def __init__(self, bootstrap: str, folder: Path, capsys: pytest.CaptureFixture[str], set_argv: Any) -> None:
        self.bootstrap = bootstrap
        self.folder = folder
        self.topics: list[str] = []
        self._capsys = capsys
        self._set_argv = set_argv

    def create(self, *topics: str) -> None:
        with Admin(self.bootstrap) as admin:
            for topic in topics:
                admin.create_topic(topic, partitions=1, config={"retention.ms": "-1"})
        self.topics += topics

    def send(self, topic: str, *records: Sent) -> None:
        """Send (key, value, time in ms). Values that are no text become JSON."""
        with Producer(self.bootstrap) as producer:
            for key, value, at in records:
                producer.send(topic, value if isinstance(value, str) else json.dumps(value), key=key, timestamp=at)

    def run(self, program: str | Path, *arguments: object) -> list[str]:
        """Run a program over all that is there; returns the lines it printed."""
        path = EXAMPLES / f"{program}.py" if isinstance(program, str) else program
        self._set_argv([path.name, self.bootstrap, *map(str, arguments)])
        self._capsys.readouterr()
        runpy.run_path(str(path), run_name="__main__")
        return self._capsys.readouterr().out.splitlines()

    def read(self, topic: str) -> list[tuple[str, Any]]:
        settings = {"auto_offset_reset": "earliest", "stop_at_end": True, "isolation_level": "read_committed"}
        with Consumer(self.bootstrap, **settings) as consumer:
            consumer.assign([(topic, 0)])
            return [((one.key or b"").decode(), json.loads(one.value)) for one in consumer]

    def penstock(self, *arguments: str) -> str:
        command = [sys.executable, "-m", "penstock.cli.main", *arguments, "--bootstrap", self.bootstrap]
        return subprocess.run(command, cwd=self.folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def place(
    spark: Any,
    cluster: RunningBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Iterator[Place]:
    monkeypatch.chdir(tmp_path)  # applications keep what they keep in the folder where they are run
    made = Place(cluster.bootstrap, tmp_path, capsys, lambda argv: monkeypatch.setattr(sys, "argv", argv))
    yield made
    with Admin(cluster.bootstrap) as admin:
        admin.delete_topics(made.topics)


def test_word_count(place: Place) -> None:
    place.create("lines", "word-counts")
    place.send("lines", (None, "To be, or not to be", 1_000), (None, "to go", 2_000))
    place.run("word_count")
    counts = {"to": 3, "be": 2, "or": 1, "not": 1, "go": 1}
    assert sorted(place.read("word-counts")) == [(word, {"count": counts[word]}) for word in sorted(counts)]


def test_joins(place: Place) -> None:
    place.create("orders", "payments", "customers", "paid-orders", "shipments")
    place.send("customers", ("anna", {"city": "Oslo"}, 1), ("bea", {"city": "Bonn"}, 1), ("anna", {"city": "Rome"}, 2))
    orders = [("anna", 12.5, 0), ("bea", 7.0, 1), ("cleo", 3.0, 2)]
    for n, (customer, amount, minute) in enumerate(orders):
        place.send("orders", (f"o{n}", {"customer": customer, "amount": amount}, 1_000 + minute * MINUTE))
    payments = [("o0", {"method": "card"}, 59 * MINUTE), ("o1", {"method": "cash"}, 62 * MINUTE)]
    place.send("payments", *payments, ("o2", {"method": "card"}, 3 * MINUTE))
    place.run("joins")
    assert dict(place.read("paid-orders")) == {
        "o0": {"customer": "anna", "amount": 12.5, "method": "card"},
        "o2": {"customer": "cleo", "amount": 3.0, "method": "card"},  # and bea has paid too late
    }
    assert place.read("shipments") == [("anna", {"amount": 12.5, "city": "Rome"})]


def test_sessions(place: Place) -> None:
    place.create("views", "visits")
    pages = [("anna", "/home", 1), ("bea", "/help", 2), ("anna", "/cart", 20), ("anna", "/paid", 45), ("anna", "/", 80)]
    place.send("views", *((user, {"page": page}, minute * MINUTE) for user, page, minute in pages))
    place.run("sessions")
    assert sorted(place.read("visits")) == [
        ("anna", {"pages": 3, "entry": "/home", "exit": "/paid"}),
        ("bea", {"pages": 1, "entry": "/help", "exit": "/help"}),
    ]


def test_deduplicate(place: Place) -> None:
    place.create("transfers", "transfers-once")
    day = 24 * 60 * MINUTE
    sent = [("anna", "t1", 1_000), ("anna", "t1", 2_000), ("anna", "t2", 3_000), ("bea", "t1", 4_000)]
    again = [("anna", "t2", 5_000), ("bea", "t1", 4_000 + day)]
    place.send("transfers", *((user, {"id": name, "amount": 1.0}, at) for user, name, at in sent + again))
    place.run("deduplicate")
    found = [(user, transfer["id"]) for user, transfer in place.read("transfers-once")]
    assert sorted(found) == [("anna", "t1"), ("anna", "t2"), ("bea", "t1"), ("bea", "t1")]


def test_enrich(place: Place) -> None:
    place.create("clicks", "profiles", "clicks-with-country", "clicks-of-strangers")
    place.send("profiles", ("anna", {"country": "IT"}, 1_000))
    place.send("clicks", *((user, {"url": "https://shop.example/cart?item=7"}, 2_000) for user in ("anna", "bea")))
    place.run("enrich")
    assert place.read("clicks-with-country") == [("anna", {"path": "/cart", "country": "IT"})]
    assert [(user, click["path"]) for user, click in place.read("clicks-of-strangers")] == [("bea", "/cart")]


def test_alerts(place: Place) -> None:
    place.create("placed", "settled", "unpaid")
    place.send("placed", *((f"o{n}", {"amount": float(n)}, n * MINUTE) for n in (1, 2, 3, 40)))
    place.send("settled", ("o1", {}, 14 * MINUTE), ("o3", {}, 19 * MINUTE))
    place.run("alerts")
    alert = "not paid within 15 minutes"
    assert sorted(place.read("unpaid")) == [
        ("o2", {"amount": 2.0, "alert": alert}),
        ("o3", {"amount": 3.0, "alert": alert}),  # paid after 16 minutes
    ]


def test_top_pages(place: Place) -> None:
    place.create("page-views", "top-pages")
    views = {"/a": 2, "/b": 5, "/c": 1, "/d": 3}
    place.send(
        "page-views", *((None, {"page": page}, 1_000 + n) for page, times in views.items() for n in range(times))
    )
    place.send("page-views", (None, {"page": "/a"}, 1 * MINUTE), (None, {"page": "/a"}, 5 * MINUTE))
    place.run("top_pages")
    assert dict(place.read("top-pages")) == {
        "1970-01-01 00:00": {"top": [{"page": page, "views": views[page]} for page in ("/b", "/d", "/a")]},
        "1970-01-01 00:01": {"top": [{"page": "/a", "views": 1}]},
    }


def test_late_data(place: Place) -> None:
    place.create("sales", "sales-per-minute", "late-sales")
    place.send("sales", ("rome", {"amount": 5.0}, 1_000), ("rome", {"amount": 2.0}, 125_000))
    place.run("late_data")
    place.send("sales", ("rome", {"amount": 4.0}, 2_000), ("rome", {"amount": 1.0}, 119_000))  # within the grace
    place.run("late_data")
    assert dict(place.read("sales-per-minute")) == {
        "rome 00:00": {"total": 5.0, "sales": 1},
        "rome 00:01": {"total": 1.0, "sales": 1},
        "rome 00:02": {"total": 2.0, "sales": 1},
    }
    assert place.read("late-sales") == [("rome", {"amount": 4.0})]


def test_reprocess(place: Place) -> None:
    place.create("shop-sales", "revenue")
    sales = [("rome", 5.0, 1.0), ("rome", 3.0, 0.0), ("bonn", 2.0, 2.0)]
    place.send("shop-sales", *((shop, {"amount": sold, "refund": back}, 1_000) for shop, sold, back in sales))
    program = place.folder / "reprocess.py"
    program.write_text((EXAMPLES / "reprocess.py").read_text())
    place.run(program)
    assert dict(place.read("revenue")) == {"rome": {"total": 8.0}, "bonn": {"total": 2.0}}
    program.write_text(program.read_text().replace("fn.sum(col.amount)", "fn.sum(col.amount - col.refund)"))
    with pytest.raises(TopologyError, match=r"reprocess\.py:\d+: sum: .* begin anew with all"):
        place.run(program)
    assert "begins anew when it is run" in place.penstock("stream", "reset", "revenue", "--yes")
    place.run(program)
    found = place.read("revenue")
    assert len(found) == 4
    assert dict(found) == {"rome": {"total": 7.0}, "bonn": {"total": 0.0}}


@pytest.mark.parametrize("kind", ["parquet", "delta"])
def test_land_in(place: Place, kind: str) -> None:
    place.create("paid-orders")
    order = {"customer": "anna", "amount": 12.5, "method": "card"}
    table = place.folder / "table"
    place.send("paid-orders", ("o1", order, 1_000), ("o2", order, 2_000))
    assert place.run(f"land_in_{kind}", "paid-orders", table)[-1] == "orders in the table: 2"
    # As after a crash between the write and Spark's note of it: the batch is run again, before what is new.
    (place.folder / "table-checkpoint" / "commits" / "0").unlink()
    place.send("paid-orders", ("o3", order, 3_000))
    assert place.run(f"land_in_{kind}", "paid-orders", table)[-1] == "orders in the table: 3"
    assert (place.folder / "table-checkpoint" / "commits" / "1").exists()


def test_no_example_is_left_out() -> None:
    names = {path.stem for path in EXAMPLES.glob("*.py")}
    assert len(names) >= 11
    assert {f"test_{name}" for name in names if not name.startswith("land_in_")} <= globals().keys()


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_an_example_says_how_it_is_run(path: Path) -> None:
    words = ast.get_docstring(ast.parse(path.read_text())) or ""
    assert f"python docs/examples/streams/{path.name} localhost:9092" in words
    if not path.stem.startswith("land_in_"):
        assert f"penstock stream run docs/examples/streams/{path.name} " in words
        topology = programs.load(str(path)).topology
        topics = {topic for source in topology.sources for topic in source.topics}
        created = " ".join(line for line in words.splitlines() if line.startswith("penstock topic create "))
        assert topics | {sink.topic for sink in topology.sinks} <= set(created.split())
