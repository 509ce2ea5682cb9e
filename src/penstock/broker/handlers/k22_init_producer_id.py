"""InitProducerId (22), versions 0-5: an identity for an idempotent or transactional producer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.txn.transaction import NO_EPOCH, NO_PRODUCER_ID, Identity
from penstock.wire.errors import ApiError, ErrorCode
from penstock.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.broker.dispatch import Call

_TELLS_FENCED = 4


async def handle(broker: Broker, request: InitProducerIdRequest, call: Call) -> InitProducerIdResponse:
    try:
        identity = await _identity(broker, request)
    except ApiError as error:
        code = error.code
        if code == ErrorCode.PRODUCER_FENCED and call.version < _TELLS_FENCED:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        return InitProducerIdResponse(error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_EPOCH)
    return InitProducerIdResponse(producer_id=identity.producer_id, producer_epoch=identity.epoch)


async def _identity(broker: Broker, request: InitProducerIdRequest) -> Identity:
    known = (request.producer_id != NO_PRODUCER_ID, request.producer_epoch != NO_EPOCH)
    if known in ((True, False), (False, True)):
        raise ApiError(ErrorCode.INVALID_REQUEST, "a producer id and its epoch go together")
    if request.transactional_id is None:
        return Identity(await broker.producer_ids.next(), 0)
    expected = Identity(request.producer_id, request.producer_epoch) if all(known) else None
    return await broker.transactions.claim(request.transactional_id, request.transaction_timeout_ms, expected)
