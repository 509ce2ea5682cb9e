"""Expressions on records, written down now and made into Spark columns later.

`col.amount > 10` and `fn.upper(col.name)` only record what was asked for; nothing here knows Spark. Names mean: `key`,
`value`, `timestamp`, `topic`, `partition`, `offset`, `headers`; and the fields of a value that is a struct, by their
own names. Functions and methods are those of `pyspark.sql.functions` and of its `Column`. Text is an expression in SQL.
"""

from __future__ import annotations

from typing import Any

from penstock.streams.places import TopologyError, caller

_SYMBOLS = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "mod": "%", "eq": "=", "ne": "!=", "lt": "<", "le": "<=",
    "gt": ">", "ge": ">=", "and": "and", "or": "or",
}  # fmt: skip
_NEGATIONS = {"invert": "not ", "neg": "-"}


class Expression:
    """Something that has a value for each record."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Attribute:
        if name.startswith("_"):
            raise AttributeError(name)
        return Attribute(self, name)

    def __getitem__(self, item: Any) -> Call:
        return Call("__getitem__", self, (item,), {})

    def __bool__(self) -> bool:
        raise TopologyError(caller(), "an expression has no truth of its own: combine conditions with &, | and ~")

    def __iter__(self) -> Any:
        raise TopologyError(caller(), "an expression cannot be looped over: use fn.explode, or flat_map_values")

    def __add__(self, other: Any) -> Operation:
        return Operation("add", (self, other))

    def __radd__(self, other: Any) -> Operation:
        return Operation("add", (other, self))

    def __sub__(self, other: Any) -> Operation:
        return Operation("sub", (self, other))

    def __rsub__(self, other: Any) -> Operation:
        return Operation("sub", (other, self))

    def __mul__(self, other: Any) -> Operation:
        return Operation("mul", (self, other))

    def __rmul__(self, other: Any) -> Operation:
        return Operation("mul", (other, self))

    def __truediv__(self, other: Any) -> Operation:
        return Operation("truediv", (self, other))

    def __rtruediv__(self, other: Any) -> Operation:
        return Operation("truediv", (other, self))

    def __mod__(self, other: Any) -> Operation:
        return Operation("mod", (self, other))

    def __rmod__(self, other: Any) -> Operation:
        return Operation("mod", (other, self))

    def __and__(self, other: Any) -> Operation:
        return Operation("and", (self, other))

    def __rand__(self, other: Any) -> Operation:
        return Operation("and", (other, self))

    def __or__(self, other: Any) -> Operation:
        return Operation("or", (self, other))

    def __ror__(self, other: Any) -> Operation:
        return Operation("or", (other, self))

    def __lt__(self, other: Any) -> Operation:
        return Operation("lt", (self, other))

    def __le__(self, other: Any) -> Operation:
        return Operation("le", (self, other))

    def __gt__(self, other: Any) -> Operation:
        return Operation("gt", (self, other))

    def __ge__(self, other: Any) -> Operation:
        return Operation("ge", (self, other))

    def __eq__(self, other: Any) -> Operation:  # type: ignore[override]
        return Operation("eq", (self, other))

    def __ne__(self, other: Any) -> Operation:  # type: ignore[override]
        return Operation("ne", (self, other))

    def __invert__(self) -> Operation:
        return Operation("invert", (self,))

    def __neg__(self) -> Operation:
        return Operation("neg", (self,))

    __hash__ = None  # type: ignore[assignment]


class Name(Expression):
    """A column by its name."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


class Sql(Expression):
    """An expression as SQL text."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


class Operation(Expression):
    """An operator and its one or two operands."""

    __slots__ = ("_operands", "_operator")

    def __init__(self, operator: str, operands: tuple[Any, ...]) -> None:
        self._operator = operator
        self._operands = operands

    def __repr__(self) -> str:
        if self._operator in _NEGATIONS:
            return f"{_NEGATIONS[self._operator]}{_nested(self._operands[0])}"
        left, right = self._operands
        return f"{_nested(left)} {_SYMBOLS[self._operator]} {_nested(right)}"


class Attribute(Expression):
    """A field of a struct; or, when it is called, a method."""

    __slots__ = ("_name", "_target")

    def __init__(self, target: Expression, name: str) -> None:
        self._target = target
        self._name = name

    def __call__(self, *arguments: Any, **options: Any) -> Call:
        return Call(self._name, self._target, arguments, options)

    def __repr__(self) -> str:
        return f"{_nested(self._target)}.{self._name}"


class Call(Expression):
    """A function, or a method of its target, and what it is called with."""

    __slots__ = ("_arguments", "_name", "_options", "_target")

    def __init__(
        self, name: str, target: Expression | None, arguments: tuple[Any, ...], options: dict[str, Any]
    ) -> None:
        self._name = name
        self._target = target
        self._arguments = arguments
        self._options = options

    def __repr__(self) -> str:
        inside = ", ".join([*map(repr, self._arguments), *(f"{name}={one!r}" for name, one in self._options.items())])
        if self._target is None:
            return f"{self._name}({inside})"
        if self._name == "__getitem__":
            return f"{_nested(self._target)}[{inside}]"
        return f"{_nested(self._target)}.{self._name}({inside})"


def _nested(operand: Any) -> str:
    text = repr(operand)
    return f"({text})" if isinstance(operand, Operation) else text


class _Columns:
    """`col.amount`, or `col["amount due"]`."""

    def __getattr__(self, name: str) -> Name:
        if name.startswith("__"):
            raise AttributeError(name)
        return Name(name)

    def __getitem__(self, name: str) -> Name:
        return Name(name)

    def __call__(self, name: str) -> Name:
        return Name(name)


class _Functions:
    """`fn.sum(col.amount)`: any function of `pyspark.sql.functions`."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *arguments, **options: Call(name, None, arguments, options)


col = _Columns()
fn = _Functions()


def expression(given: Any) -> Expression:
    """What a user gave as an expression: text is SQL."""
    return given if isinstance(given, Expression) else Sql(given)
