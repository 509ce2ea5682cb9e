from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.log.checkpoints import CorruptCheckpoint, read_lines, read_offsets, write_lines, write_offsets
from penstock.log.storage import Storage

STORAGE = Storage()
OFFSETS = {("clicks", 0): 17, ("a.b-c_d", 12): 2**40}


def test_a_checkpoint_is_a_version_a_count_and_that_many_lines(tmp_path: Path) -> None:
    write_offsets(STORAGE, str(tmp_path / "c"), OFFSETS)
    assert (tmp_path / "c").read_bytes() == b"0\n2\nclicks 0 17\na.b-c_d 12 1099511627776\n"


def test_an_empty_checkpoint_has_no_lines(tmp_path: Path) -> None:
    write_offsets(STORAGE, str(tmp_path / "c"), {})
    assert (tmp_path / "c").read_bytes() == b"0\n0\n"
    assert read_offsets(STORAGE, str(tmp_path / "c")) == {}


def test_a_missing_checkpoint_has_no_lines(tmp_path: Path) -> None:
    assert read_offsets(STORAGE, str(tmp_path / "c")) == {}
    assert read_lines(STORAGE, str(tmp_path / "c")) == []


@settings(deadline=None)
@given(
    st.dictionaries(
        st.tuples(st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True), st.integers(0, 10_000)),
        st.integers(0, 2**63 - 1),
        max_size=10,
    )
)
def test_what_is_written_is_read_again(
    tmp_path_factory: pytest.TempPathFactory, offsets: dict[tuple[str, int], int]
) -> None:
    path = str(tmp_path_factory.mktemp("checkpoints") / "c")
    write_offsets(STORAGE, path, offsets)
    assert read_offsets(STORAGE, path) == offsets


def test_a_checkpoint_of_kafka_with_windows_line_ends_is_read(tmp_path: Path) -> None:
    (tmp_path / "c").write_bytes(b"0\r\n1\r\nclicks 0 17\r\n")
    assert read_offsets(STORAGE, str(tmp_path / "c")) == {("clicks", 0): 17}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"0",
        b"0\n",
        b"1\n1\nclicks 0 17\n",  # a version nobody knows
        b"-1\n0\n",
        b"zero\n0\n",
        b"0\nmany\n",
        b"0\n1\n",  # lines are missing
        b"0\n2\nclicks 0 17\n",
        b"0\n0\nclicks 0 17\n",  # there are too many
        b"0\n1\nclicks 0\n",
        b"0\n1\nclicks 0 17 4\n",
        b"0\n1\nclicks zero 17\n",
        b"0\n1\nclicks 0 x\n",
        b"\0\0\0\0\0\0\0\0",
        b"\xff\xfe\xfd\xfc\x80\x81\n\xc3",
    ],
)
def test_a_damaged_checkpoint_is_noticed(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "c").write_bytes(content)
    with pytest.raises(CorruptCheckpoint):
        read_offsets(STORAGE, str(tmp_path / "c"))


@settings(deadline=None)
@given(st.integers(0, 100))
def test_a_checkpoint_that_was_cut_off_is_noticed_or_was_whole(
    tmp_path_factory: pytest.TempPathFactory, size: int
) -> None:
    """A cut within the last number cannot be seen: that is why checkpoints are replaced, not overwritten."""
    path = tmp_path_factory.mktemp("checkpoints") / "c"
    write_offsets(STORAGE, str(path), OFFSETS)
    whole = path.read_bytes()
    path.write_bytes(whole[:size])
    try:
        offsets = read_offsets(STORAGE, str(path))
    except CorruptCheckpoint:
        return
    assert list(offsets) == list(OFFSETS)


class NoRename(Storage):
    def rename(self, old: str, new: str) -> None:
        raise OSError(5, "I/O error")


def test_a_checkpoint_that_cannot_be_put_in_place_leaves_the_old_one(tmp_path: Path) -> None:
    path = str(tmp_path / "c")
    write_offsets(STORAGE, path, OFFSETS)
    with pytest.raises(OSError, match="I/O error"):
        write_offsets(NoRename(), path, {("other", 1): 5})
    assert read_offsets(STORAGE, path) == OFFSETS


def test_leftovers_of_a_failed_write_do_not_reach_the_next_one(tmp_path: Path) -> None:
    path = str(tmp_path / "c")
    with pytest.raises(OSError, match="I/O error"):
        write_lines(NoRename(), path, ["a long line " * 50])
    write_lines(STORAGE, path, ["short"])
    assert read_lines(STORAGE, path) == [["short"]]
    assert [entry.name for entry in tmp_path.iterdir()] == ["c"]
