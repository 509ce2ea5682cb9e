"""Responses that say no: an error code in every place that a response has for one.

A request that would change something is not carried out. Its response is made from the request itself: what the two
call by the same name is copied, and each topic, partition, group or resource that was asked about is answered. Requests
that only look are carried out, so that the rest of their response is what it would be (the brokers in Metadata), and
get the code put in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from penstock.wire import _codec
from penstock.wire.api import Api
from penstock.wire.errors import ErrorCode
from penstock.wire.schema import FieldSpec, field_table

_LOOKING = ("Describe", "List", "Metadata", "OffsetFetch", "FindCoordinator", "ApiVersions", "ConsumerGroupDescribe")

# What a list in a response is called in the request, and likewise what identifies its elements, if not the same.
_LISTS = {
    "responses": ("topic_data", "topics", "topic_names", "resources"),
    "results": ("topics", "resources", "groups_names"),
    "partition_responses": ("partition_data",),
}
_IDENTIFIERS = {"partition_index": ("partition", "index")}
_ELEMENT_NAMES = ("name", "group_id", "partition_index")

_CODE, _MESSAGE = "error_code", "error_message"
_NOT_COPIED = (_CODE, _MESSAGE, "session_id")


def error_code(code: ErrorCode | int | str) -> ErrorCode:
    """An error code by its name or number. Raises ValueError if there is none such."""
    try:
        return ErrorCode[code] if isinstance(code, str) else ErrorCode(code)
    except (KeyError, ValueError):
        raise ValueError(f"{code!r} is no error code of the protocol; NOT_LEADER_OR_FOLLOWER is one") from None


def refuse(api: Api, request: Any, version: int, code: ErrorCode, proceed: Callable[[], Any]) -> Any:
    """What a handler would return that refuses a request: a response, None or a coroutine of either."""
    if api.name == "Produce" and request.acks == 0:
        return None  # a producer that wants no answer does not hear of errors
    if not api.name.startswith(_LOOKING):
        response = _mirror(request, api.response_type, version)
        if _put(response, code):
            return response
    result = proceed()
    if asyncio.isfuture(result) or asyncio.iscoroutine(result):
        return _put_later(result, code)
    _put(result, code)
    return result


async def _put_later(result: Any, code: ErrorCode) -> Any:
    response = await result
    _put(response, code)
    return response


def _put(part: Any, code: ErrorCode) -> int:
    """Set all error codes in a response or a part of one; returns how many there are."""
    count = 0
    for row in field_table(type(part)) if part is not None else ():
        if row.name == _CODE:
            part.error_code = code
            count += 1
        elif row.name == _MESSAGE:
            part.error_message = f"{code.name}, as a test asked for"
        elif row.type.struct is not None:
            found = getattr(part, row.name)
            for element in found if isinstance(found, list) else [found]:
                count += _put(element, code)
    return count


def _mirror(request: Any, response_type: type, version: int) -> Any:
    response = response_type()
    for row in field_table(response_type):
        if version not in row.versions or row.name in _NOT_COPIED:
            continue
        if row.type.kind == _codec.ARRAY and row.type.struct is not None:
            if _carries_errors(row.type.struct):
                setattr(response, row.name, _mirror_list(request, row, version))
        elif row.type.struct is None:
            for name in (row.name, *_IDENTIFIERS.get(row.name, ())):
                if hasattr(request, name):
                    setattr(response, row.name, getattr(request, name))
            if getattr(response, row.name) is None and row.type.kind == _codec.STRING and version not in row.nullable:
                setattr(response, row.name, "")
    return response


def _mirror_list(request: Any, row: FieldSpec, version: int) -> list[Any]:
    """An element of a response's list for each element of the request's."""
    struct = row.type.struct
    assert struct is not None
    for name in (row.name, *_LISTS.get(row.name, ())):
        elements = getattr(request, name, None)
        if elements:
            return [_mirror_element(element, struct, version) for element in elements]
    return []


def _mirror_element(element: Any, struct: type, version: int) -> Any:
    if isinstance(element, (str, int)):
        made = struct()
        known = [row.name for row in field_table(struct)]
        setattr(made, next(name for name in _ELEMENT_NAMES if name in known), element)
        return made
    return _mirror(element, struct, version)


def _carries_errors(struct: type) -> bool:
    return any(
        row.name == _CODE or (row.type.struct is not None and _carries_errors(row.type.struct))
        for row in field_table(struct)
    )
