"""InitProducerId (22), versions 0-5: an identity for an idempotent producer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.wire.errors import ErrorCode
from penstock.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.broker.dispatch import Call


async def handle(broker: Broker, request: InitProducerIdRequest, call: Call) -> InitProducerIdResponse:
    if request.transactional_id == "":
        return _refused(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:  # there is no transaction coordinator that could know it
        return _refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return InitProducerIdResponse(producer_id=await broker.producer_ids.next(), producer_epoch=0)


def _refused(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
