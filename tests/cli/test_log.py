"""The files in a data folder: dump, verify, repair."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import penstock.testing
from penstock import Admin, Consumer, Producer
from tests.cli.running import Command

RECORDS = 300


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with a topic of several segments, closed in good order."""
    data = tmp_path_factory.mktemp("log") / "data"
    with penstock.testing.broker(data=data) as broker:
        with Admin(broker.bootstrap) as admin:
            admin.create_topic("orders", partitions=1, config={"segment.bytes": "20000", "index.interval.bytes": "500"})
        with Producer(broker.bootstrap, idempotence=False, linger_ms=0) as producer:
            for number in range(RECORDS):
                producer.send("orders", b"%0100d" % number, key=b"k%d" % number, headers={"h": "1"})
                if number % 5 == 0:
                    producer.flush()
    return data


@pytest.fixture
def data(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "data")
    return tmp_path / "data"


def _segments(data: Path, suffix: str = ".log") -> list[Path]:
    return sorted((data / "orders-0").glob(f"*{suffix}"))


def test_a_good_folder_has_no_problems(anywhere: Command, data: Path) -> None:
    told = anywhere.json("log", "verify", str(data))
    assert told["problems"] == []
    assert told["segments"] > 2
    one = anywhere.json("log", "verify", str(data / "orders-0"))
    assert (one["partitions"], one["records"]) == (1, RECORDS)
    assert "no problems in" in anywhere("log", "verify", str(data)).out
    assert anywhere("log", "repair", str(data)).err == "There is nothing to repair.\n"


def test_files_are_dumped(anywhere: Command, data: Path) -> None:
    first = _segments(data)[0]
    (dumped,) = anywhere.json("log", "dump", str(first))
    assert dumped["entries"][0]["base_offset"] == 0
    (deep,) = anywhere.json("log", "dump", str(first), "--deep")
    assert deep["entries"][0] == dumped["entries"][0]
    record = deep["entries"][1]
    assert (record["offset"], record["key"], record["value"]) == (0, "k0", f"{0:0100d}")
    assert record["headers"] == [["h", "1"]]
    everything = anywhere.json("log", "dump", str(data / "orders-0"))
    assert {Path(one["file"]).suffix for one in everything} == {".log", ".index", ".timeindex"}
    entries = next(one["entries"] for one in everything if one["file"].endswith(".index"))
    assert entries[0].keys() == {"offset", "position"}
    assert "base_offset=0" in anywhere("log", "dump", str(first)).out
    assert "key=k0" in anywhere("log", "dump", str(first), "-d").out


def test_a_torn_tail_is_found_and_cut(anywhere: Command, data: Path) -> None:
    last = _segments(data)[-1]
    content = last.read_bytes()
    last.write_bytes(content[:-7])
    found = anywhere.run("log", "verify", str(data), "--json")
    assert found.code == 1
    problem = found.json["problems"][0]
    assert problem["file"] == f"orders-0/{last.name}"
    assert 0 < problem["position"] < len(content)
    assert "is cut short" in problem["problem"]
    assert anywhere.run("log", "dump", str(last)).code == 1
    assert "Say so with --yes" in anywhere.fails("log", "repair", str(data), code=2)
    (row,) = anywhere.json("log", "repair", str(data), "--yes")["repaired"]
    assert row["partition"] == "orders-0"
    assert row["problems_left"] == 0
    assert anywhere.json("log", "verify", str(data))["problems"] == []
    with penstock.testing.broker(data=data) as broker:
        options = {"stop_at_end": True, "auto_offset_reset": "earliest"}
        with Consumer(broker.bootstrap, **options) as consumer:  # type: ignore[arg-type]
            consumer.assign([("orders", 0)])
            read = [int(record.value) for record in consumer]
    assert read == list(range(row["end_offset"]))
    assert RECORDS - 6 <= len(read) < RECORDS


def test_a_flipped_bit_is_found_where_it_is(anywhere: Command, data: Path) -> None:
    first = _segments(data)[0]
    (dumped,) = anywhere.json("log", "dump", str(first))
    position = dumped["entries"][1]["position"]
    content = bytearray(first.read_bytes())
    content[position + 70] ^= 1
    first.write_bytes(content)
    problems = anywhere.run("log", "verify", str(data), "--json").json["problems"]
    assert problems[0]["position"] == position
    shown = anywhere.run("log", "verify", str(data))
    assert (shown.code, str(position) in shown.out) == (1, True)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", ["gone", "short", "wrong"])
def test_damaged_indexes_are_found_and_rebuilt(anywhere: Command, data: Path, suffix: str, damage: str) -> None:
    index = _segments(data, suffix)[0]
    if damage == "gone":
        index.unlink()
    elif damage == "short":
        index.write_bytes(index.read_bytes()[:-3])
    else:
        index.write_bytes(index.read_bytes()[:8][::-1] + index.read_bytes()[8:])
    problems = anywhere.run("log", "verify", str(data), "--json").json["problems"]
    assert problems[0]["file"] == f"orders-0/{index.name}"
    (row,) = anywhere.json("log", "repair", str(data), "--yes")["repaired"]
    assert (row["cut_bytes"], row["end_offset"]) == (0, RECORDS)
    assert anywhere.json("log", "verify", str(data))["problems"] == []


def test_a_folder_in_use_is_not_repaired(anywhere: Command, data: Path) -> None:
    with penstock.testing.broker(data=data, as_process=True):
        line = anywhere.fails("log", "repair", str(data), "--yes", code=1)
        assert "a broker uses" in line
        told = anywhere.json("log", "verify", str(data))
        assert (told["in_use"], told["problems"]) == (True, [])


def test_mistakes_are_one_line(anywhere: Command, data: Path, tmp_path: Path) -> None:
    assert "is no folder" in anywhere.fails("log", "verify", str(tmp_path / "none"), code=2)
    assert "is no data folder" in anywhere.fails("log", "repair", str(tmp_path), code=2)
    assert "does not exist" in anywhere.fails("log", "dump", str(tmp_path / "none"), code=2)
    assert "has no segment files" in anywhere.fails("log", "dump", str(data), code=2)
    assert "is no segment" in anywhere.fails("log", "dump", str(data / "meta.properties"), code=2)


def test_the_metadata_are_repaired_like_any_log(anywhere: Command, data: Path) -> None:
    (log,) = (data / "__cluster_metadata-0").glob("*.log")
    log.write_bytes(log.read_bytes() + b"torn")
    (row,) = anywhere.json("log", "repair", str(data), "--yes")["repaired"]
    assert (row["partition"], row["cut_bytes"]) == ("__cluster_metadata-0", 4)
    with penstock.testing.broker(data=data) as broker, Admin(broker.bootstrap) as admin:
        assert admin.list_topics() == ["orders"]
