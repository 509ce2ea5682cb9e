"""What the processes of tasks do with their garbage, and others do not."""

from __future__ import annotations

import gc
from typing import Any

from penstock.spark.task_process import settle


def _frozen_by_a_task(_: object) -> int:
    settle()
    return gc.get_freeze_count()


def test_what_a_process_has_loaded_is_frozen_in_tasks_only(spark: Any) -> None:
    before = gc.get_freeze_count()
    settle()
    assert gc.get_freeze_count() == before
    assert spark.sparkContext.parallelize([0], 1).map(_frozen_by_a_task).first() > 1000
