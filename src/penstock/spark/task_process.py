"""The Python processes in which Spark runs tasks."""

from __future__ import annotations

import gc
from functools import cache


@cache
def settle() -> None:
    """Make the collection of garbage cheap that Spark does in the process after every single task.

    It looks at each object of each library that is loaded, which takes longer than many a task. What is there now stays
    for good, so it need not be looked at again.
    """
    gc.freeze()
