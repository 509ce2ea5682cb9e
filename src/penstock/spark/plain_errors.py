"""Errors as a user of Spark should see them.

Spark shows an error of a data source with every line of the way it came. For a mistake in an option, or a topic that is
not there, the way says nothing: the sentence does.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from penstock.client.errors import PenstockError

P = ParamSpec("P")
T = TypeVar("T")


def plainly(function: Callable[P, T]) -> Callable[P, T]:
    """A function, or generator, whose errors of ours come without their way."""

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except PenstockError as error:
            raise error.with_traceback(None) from None

    @wraps(function)
    def generate(*args: P.args, **kwargs: P.kwargs) -> Iterator[Any]:
        try:
            yield from function(*args, **kwargs)  # type: ignore[misc]
        except PenstockError as error:
            raise error.with_traceback(None) from None

    return generate if inspect.isgeneratorfunction(function) else run  # type: ignore[return-value]
