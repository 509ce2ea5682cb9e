"""Recorded expressions and functions as columns of Spark."""

from __future__ import annotations

import difflib
import operator
from collections.abc import Callable, Sequence
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as f

from penstock.streams.changes import Change, Function, Single
from penstock.streams.engine.records import named
from penstock.streams.expressions import Attribute, Call, Expression, Name, Operation, Sql
from penstock.streams.nodes import Node
from penstock.streams.places import TopologyError

_OPERATORS: dict[str, Callable[..., Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "truediv": operator.truediv, "mod": operator.mod,
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
    "and": operator.and_, "or": operator.or_, "invert": operator.invert, "neg": operator.neg,
}  # fmt: skip


def changed(node: Node, change: Change, arguments: Sequence[str] = ("key", "value")) -> Column:
    """What a change makes of the columns of a frame. A Python function gets those in `arguments`."""
    if isinstance(change, Function):
        wanted = arguments if change.with_key else arguments[-1:]
        call: Any = f.udf(change.call, change.returns, useArrow=True)
        made: Column = call(*wanted)
        return made
    if isinstance(change, Single):
        return column(node, change.expression)
    return f.struct(*(column(node, one).alias(name) for name, one in change.by_name.items()))


def column(node: Node, expression: Expression) -> Column:
    """A recorded expression, as a column. Mistakes are told with the line of the step it belongs to."""
    match expression:
        case Name():
            return named(expression._name)
        case Sql():
            return f.expr(expression._text)
        case Attribute():
            return column(node, expression._target).getField(expression._name)
        case Operation():
            made: Column = _OPERATORS[expression._operator](*(_operand(node, one) for one in expression._operands))
            return made
        case Call():
            return _called(node, expression)
    raise AssertionError(f"{type(expression).__name__} is no expression")


def _operand(node: Node, given: Any) -> Column:
    return column(node, given) if isinstance(given, Expression) else f.lit(given)


def _called(node: Node, call: Call) -> Column:
    owner = f if call._target is None else column(node, call._target)
    function = getattr(f if call._target is None else Column, call._name, None)
    if not callable(function):
        what = f"function fn.{call._name}" if call._target is None else f"method {call._name}"
        close = difflib.get_close_matches(call._name, dir(owner), 1)
        hint = f"; there is {close[0]}" if close else ""
        raise TopologyError(node.place, f"{node.name}: Spark has no {what}{hint}")
    arguments = [_argument(node, one) for one in call._arguments]
    options = {name: _argument(node, one) for name, one in call._options.items()}
    bound = function if call._target is None else getattr(owner, call._name)
    try:
        made: Column = bound(*arguments, **options)
    except TypeError as error:
        raise TopologyError(node.place, f"{node.name}: {call!r} cannot be called like that: {error}") from error
    return made


def _argument(node: Node, given: Any) -> Any:
    if isinstance(given, (list, tuple)):
        return [_argument(node, one) for one in given]
    return column(node, given) if isinstance(given, Expression) else given
