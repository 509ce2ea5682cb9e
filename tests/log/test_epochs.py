from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.log.epochs import EpochEntry, LeaderEpochs
from penstock.log.storage import Storage

FILE = "leader-epoch-checkpoint"


def epochs_at(path: Path, *entries: tuple[int, int]) -> LeaderEpochs:
    epochs = LeaderEpochs(Storage(), str(path / FILE))
    for epoch, start_offset in entries:
        epochs.assign(epoch, start_offset)
    return epochs


def test_epochs_are_remembered_with_their_first_offsets(tmp_path: Path) -> None:
    epochs = epochs_at(tmp_path, (0, 0), (2, 10), (5, 30))
    assert epochs.entries == ((0, 0), (2, 10), (5, 30))
    assert epochs.latest == 5


def test_an_epoch_that_goes_on_is_no_new_entry(tmp_path: Path) -> None:
    epochs = epochs_at(tmp_path, (2, 10))
    epochs.flush()
    epochs.assign(2, 10)
    epochs.assign(2, 99)
    assert epochs.entries == ((2, 10),)
    assert not epochs.is_dirty


@pytest.mark.parametrize(
    ("assigned", "kept"),
    [
        ((3, 30), [(0, 0), (1, 10), (2, 20), (3, 30)]),
        ((3, 20), [(0, 0), (1, 10), (3, 20)]),  # epoch 2 wrote nothing
        ((3, 5), [(0, 0), (3, 5)]),
        ((3, 0), [(3, 0)]),
        ((2, 15), [(0, 0), (1, 10), (2, 15)]),
        ((1, 40), [(0, 0), (1, 40)]),
        ((0, 40), [(0, 40)]),
    ],
)
def test_the_newer_entry_wins_over_those_it_contradicts(
    tmp_path: Path, assigned: tuple[int, int], kept: list[tuple[int, int]]
) -> None:
    assert epochs_at(tmp_path, (0, 0), (1, 10), (2, 20), assigned).entries == tuple(kept)


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (-1, (-1, -1)),  # undefined
        (7, (7, 100)),  # the latest ends where the log ends
        (3, (3, 20)),
        (4, (3, 20)),  # between two: the older one's end
        (5, (5, 60)),
        (6, (5, 60)),
        (2, (2, 10)),  # older than all: its records end where ours begin
        (0, (0, 10)),
        (8, (-1, -1)),  # newer than all
    ],
)
def test_the_end_of_an_epoch_is_where_the_next_one_begins(tmp_path: Path, asked: int, answer: tuple[int, int]) -> None:
    assert epochs_at(tmp_path, (3, 10), (5, 20), (7, 60)).end_offset_for(asked, 100) == answer


def test_without_entries_no_epoch_is_known(tmp_path: Path) -> None:
    epochs = epochs_at(tmp_path)
    assert epochs.latest == -1
    assert epochs.end_offset_for(0, 100) == (-1, -1)
    assert epochs.end_offset_for(-1, 100) == (-1, -1)
    assert epochs.epoch_at(5) == -1


@pytest.mark.parametrize(("offset", "epoch"), [(9, -1), (10, 3), (19, 3), (20, 5), (59, 5), (60, 7), (10**9, 7)])
def test_every_offset_belongs_to_the_epoch_that_began_last_before_it(tmp_path: Path, offset: int, epoch: int) -> None:
    assert epochs_at(tmp_path, (3, 10), (5, 20), (7, 60)).epoch_at(offset) == epoch


@pytest.mark.parametrize(
    ("end_offset", "kept"),
    [
        (61, [(3, 10), (5, 20), (7, 60)]),
        (60, [(3, 10), (5, 20)]),
        (21, [(3, 10), (5, 20)]),
        (20, [(3, 10)]),
        (10, []),
        (0, []),
    ],
)
def test_truncation_from_the_end_forgets_epochs_without_records(
    tmp_path: Path, end_offset: int, kept: list[tuple[int, int]]
) -> None:
    epochs = epochs_at(tmp_path, (3, 10), (5, 20), (7, 60))
    epochs.truncate_from_end(end_offset)
    assert epochs.entries == tuple(kept)
    assert epochs.latest == (kept[-1][0] if kept else -1)


@pytest.mark.parametrize(
    ("start_offset", "kept"),
    [
        (0, [(3, 10), (5, 20), (7, 60)]),
        (10, [(3, 10), (5, 20), (7, 60)]),
        (15, [(3, 15), (5, 20), (7, 60)]),
        (20, [(5, 20), (7, 60)]),
        (59, [(5, 59), (7, 60)]),
        (60, [(7, 60)]),
        (1000, [(7, 1000)]),
    ],
)
def test_truncation_from_the_start_moves_the_epoch_that_spans_it(
    tmp_path: Path, start_offset: int, kept: list[tuple[int, int]]
) -> None:
    epochs = epochs_at(tmp_path, (3, 10), (5, 20), (7, 60))
    epochs.truncate_from_start(start_offset)
    assert epochs.entries == tuple(kept)


def test_clearing_forgets_all(tmp_path: Path) -> None:
    epochs = epochs_at(tmp_path, (3, 10))
    epochs.clear()
    assert epochs.entries == ()
    assert epochs.latest == -1
    assert epochs.is_dirty


def test_the_file_is_kafkas_and_is_written_by_flush_alone(tmp_path: Path) -> None:
    epochs = epochs_at(tmp_path, (3, 10), (5, 20))
    assert epochs.is_dirty
    assert not (tmp_path / FILE).exists()
    epochs.flush()
    assert not epochs.is_dirty
    assert (tmp_path / FILE).read_bytes() == b"0\n2\n3 10\n5 20\n"
    epochs.truncate_from_end(0)
    assert (tmp_path / FILE).read_bytes() == b"0\n2\n3 10\n5 20\n"
    epochs.flush()
    assert (tmp_path / FILE).read_bytes() == b"0\n0\n"


def test_flushed_epochs_are_loaded_again(tmp_path: Path) -> None:
    epochs_at(tmp_path, (3, 10), (5, 20)).flush()
    loaded = epochs_at(tmp_path)
    assert loaded.entries == (EpochEntry(3, 10), EpochEntry(5, 20))
    assert loaded.latest == 5
    assert not loaded.is_dirty


@pytest.mark.parametrize("content", [b"1\n0\n", b"0\n2\n3 10\n", b"", b"0\n1\nthree ten\n", b"0\n1\n3 10 4\n"])
def test_a_damaged_file_is_forgotten_and_begun_anew(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / FILE).write_bytes(content)
    epochs = epochs_at(tmp_path, (7, 30))
    assert epochs.entries == (EpochEntry(7, 30),)
    assert "damaged" in caplog.text
    epochs.flush()
    assert (tmp_path / FILE).read_bytes() == b"0\n1\n7 30\n"


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 50)), max_size=12), st.integers(0, 55), st.integers(0, 55))
def test_epochs_and_offsets_always_ascend(
    tmp_path_factory: pytest.TempPathFactory, assigned: list[tuple[int, int]], start: int, end: int
) -> None:
    epochs = epochs_at(tmp_path_factory.mktemp("epochs"), *assigned)

    def check() -> None:
        for before, after in zip(epochs.entries, epochs.entries[1:], strict=False):
            assert before.epoch < after.epoch
            assert before.start_offset < after.start_offset

    check()
    if assigned:
        assert epochs.latest == assigned[-1][0]
    written_by = [epochs.epoch_at(offset) for offset in range(60)]
    epochs.truncate_from_end(max(start, end))
    check()
    epochs.truncate_from_start(min(start, end))
    check()
    for offset in range(min(start, end), max(start, end)):
        assert epochs.epoch_at(offset) == written_by[offset]
