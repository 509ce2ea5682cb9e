"""The Python processes in which Spark runs tasks."""

from __future__ import annotations

import gc
import sys
from functools import cache

from pyspark import TaskContext


def settle() -> None:
    """Make the collection of garbage cheap that Spark does in the process after every single task.

    It looks at each object of each library that is loaded, which takes longer than many a task. What libraries have
    made when a task begins stays for good, so it need not be looked at again. A process that is not Spark's is left
    alone: what it has made so far may well become garbage.
    """
    if TaskContext.get() is not None:
        _settle(len(sys.modules))


@cache
def _settle(module_count: int) -> None:
    """Once for each number of modules: tasks load more as they go."""
    gc.freeze()
