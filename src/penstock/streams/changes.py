"""What a step does to a record: an expression, fields of a struct, or a Python function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.streams.expressions import Expression, expression
from penstock.streams.places import TopologyError, caller


@dataclass(frozen=True, eq=False)
class Function:
    """A Python function of a value, or of a key and a value, and the Spark type of what it returns."""

    call: Callable[..., Any]
    returns: str
    with_key: bool

    def __str__(self) -> str:
        return getattr(self.call, "__name__", type(self.call).__name__).replace("<lambda>", "lambda")


@dataclass(frozen=True, eq=False)
class Fields:
    """A struct, field by field."""

    by_name: Mapping[str, Expression]

    def __str__(self) -> str:
        return ", ".join(f"{name}={one!r}" for name, one in self.by_name.items())


@dataclass(frozen=True, eq=False)
class Single:
    """One expression."""

    expression: Expression

    def __str__(self) -> str:
        return repr(self.expression)


Change = Function | Fields | Single


def change(given: Any, fields: Mapping[str, Any], returns: str | None, what: str) -> Change:
    """What a user gave: `given` is an expression, SQL text, a dict of fields, or a function."""
    if fields and given is not None:
        raise TopologyError(caller(), f"{what} takes either one expression or fields by name, not both")
    if isinstance(given, Mapping) or fields:
        return Fields({name: expression(one) for name, one in (given or fields).items()})
    if given is None:
        raise TopologyError(caller(), f"{what} needs an expression, fields by name, or a function")
    if isinstance(given, (str, Expression)):
        return Single(expression(given))
    if not callable(given):
        raise TopologyError(
            caller(), f"{what} got {given!r}: give an expression such as col.amount, SQL text, or a function"
        )
    if returns is None:
        raise TopologyError(caller(), f"{what} got a Python function: say what type it returns, as in returns='STRING'")
    return Function(given, returns, takes_key(given, what))


def joined(given: Any, fields: Mapping[str, Any], returns: str | None) -> Change | None:
    """What a user wants of a join's two sides; None: both."""
    return None if given is None and not fields else change(given, fields, returns, "join")


def joined_on(given: Any) -> Expression:
    """The expression by which a user wants to look something up."""
    if not isinstance(given, (str, Expression)):
        raise TopologyError(caller(), f"on={given!r} cannot be: give an expression, as in on=col.customer, or SQL text")
    return expression(given)


def condition(given: Any, what: str) -> Change:
    """A condition: as a change, of which the type is known."""
    return change(given, {}, "BOOLEAN", what)


def takes_key(function: Callable[..., Any], what: str) -> bool:
    """Whether a function takes a key and a value, or a value only."""
    if not takes(function, 1) and not takes(function, 2):
        raise TopologyError(caller(), f"{what} got a function that takes neither value, nor key and value")
    return not takes(function, 1)


def takes(function: Callable[..., Any], count: int) -> bool:
    """Whether a function can be called with so many arguments. Some built-in ones do not say, and are believed to."""
    try:
        inspect.signature(function).bind(*[None] * count)
    except TypeError:
        return False
    except ValueError:
        return True
    return True
