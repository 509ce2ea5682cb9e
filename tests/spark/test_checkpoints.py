"""What is read from the checkpoint of a query."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.spark import checkpoints
from penstock.spark.checkpoints import offsets_after, offsets_before, watermark_before

LOG = """v1
{"batchWatermarkMs":1234,"batchTimestampMs":5678,"conf":{}}
{"in":{"0":7}}
"""


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    (tmp_path / "a checkpoint" / "offsets").mkdir(parents=True)
    (tmp_path / "a checkpoint" / "offsets" / "4").write_text(LOG)
    return tmp_path / "a checkpoint"


@pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}"])
@pytest.mark.parametrize("is_far", [False, True], ids=["here", "far"])
def test_a_checkpoint_is_found_however_it_is_named(
    spark: Any, checkpoint: Path, form: str, is_far: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_far:  # as on a file system that only Spark knows
        monkeypatch.setattr(checkpoints, "_folder_here", lambda context, checkpoint: None)
    frame, name = spark.range(1), form.format(checkpoint)
    assert offsets_after(frame, name, 4) == {("in", 0): 7}
    assert offsets_before(frame, name, 5) == {("in", 0): 7}
    assert watermark_before(frame, name, 5) == 1234


def test_a_folder_of_this_machine_is_known_as_such(spark: Any, checkpoint: Path) -> None:
    assert checkpoints._folder_here(spark.sparkContext, f"file:{checkpoint}") == checkpoint


def test_before_the_first_batch_nothing_was_read(spark: Any, checkpoint: Path) -> None:
    frame = spark.range(1)
    assert offsets_before(frame, str(checkpoint), 0) == {}
    assert watermark_before(frame, str(checkpoint), 0) == 0
