"""Which records to show: by a pattern, by fields of JSON values, by headers."""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Sequence
from typing import Any

from penstock.cli.mistakes import Mistake
from penstock.client.records import Record

AnyRecord = Record[Any, Any]
Filter = Callable[[AnyRecord], bool]

_MISSING = object()
_CONDITION = re.compile(r"\s*([^=!<>~\s]+)\s*(!=|>=|<=|=|>|<|~)(.*)", re.DOTALL)
_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
}


def compile_filters(grep: str | None, where: Sequence[str], headers: Sequence[str]) -> Filter:
    """All of these must hold."""
    filters = [_where(text) for text in where] + [_header(text) for text in headers]
    if grep is not None:
        filters.append(_grep(grep))
    return lambda record: all(accepts(record) for accepts in filters)


def _grep(pattern: str) -> Filter:
    compiled = _compiled(pattern, "--grep")
    return lambda record: any(
        content is not None and compiled.search(content) is not None for content in (record.value, record.key)
    )


def _header(text: str) -> Filter:
    name, equals, value = text.partition("=")
    if not equals:
        return lambda record: any(key == name for key, _ in record.headers)
    return lambda record: any(key == name and content == value.encode() for key, content in record.headers)


def _where(text: str) -> Filter:
    found = _CONDITION.fullmatch(text)
    if found is None:
        raise Mistake(f"--where {text}: write it like user.id=7, amount>100, status!=done or name~^A")
    path, sign, wanted = found.groups()
    check = _check(sign, wanted.strip())
    return lambda record: check(_field(record.value, path))


def _check(sign: str, wanted: str) -> Callable[[Any], bool]:
    if sign == "~":
        pattern = _compiled(wanted, "--where")
        return lambda value: value is not _MISSING and pattern.search(_text(value).encode()) is not None
    if sign == "=":
        return lambda value: value is not _MISSING and _is_equal(value, wanted)
    if sign == "!=":
        return lambda value: value is _MISSING or not _is_equal(value, wanted)
    return lambda value: _is_ordered(value, wanted, _ORDERS[sign])


def _is_equal(value: Any, wanted: str) -> bool:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        number = _number(wanted)
        return number is not None and value == number
    return _text(value) == wanted


def _is_ordered(value: Any, wanted: str, order: Callable[[Any, Any], bool]) -> bool:
    """Numbers as numbers, text as text; what cannot be compared does not match."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        number = _number(wanted)
        return number is not None and order(value, number)
    return isinstance(value, str) and order(value, wanted)


def _field(content: bytes | None, path: str) -> Any:
    """The field of a JSON value that a path like "user.addresses.0.city" leads to."""
    try:
        value = json.loads(content or b"")
    except ValueError:
        return _MISSING
    for name in path.split("."):
        if isinstance(value, dict) and name in value:
            value = value[name]
        elif isinstance(value, list) and name.isdigit() and int(name) < len(value):
            value = value[int(name)]
        else:
            return _MISSING
    return value


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _compiled(pattern: str, option: str) -> re.Pattern[bytes]:
    try:
        return re.compile(pattern.encode())
    except re.error as error:
        raise Mistake(f"{option} {pattern}: this is no regular expression: {error}") from None
