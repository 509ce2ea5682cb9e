"""EndTxn (26), versions 0-5: commit or abort a transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.txn.transaction import VERSION_2, Identity
from penstock.wire.errors import ApiError, ErrorCode
from penstock.wire.messages.end_txn import EndTxnRequest, EndTxnResponse

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.broker.dispatch import Call

_TELLS_FENCED = 2
_BUMPS_EPOCH = 5


async def handle(broker: Broker, request: EndTxnRequest, call: Call) -> EndTxnResponse:
    try:
        identity = await broker.transactions.end(
            request.transactional_id,
            Identity(request.producer_id, request.producer_epoch),
            is_commit=request.committed,
            client_version=VERSION_2 if call.version >= _BUMPS_EPOCH else 0,
        )
    except ApiError as error:
        code = error.code
        if code == ErrorCode.PRODUCER_FENCED and call.version < _TELLS_FENCED:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        return EndTxnResponse(error_code=code)
    return EndTxnResponse(producer_id=identity.producer_id, producer_epoch=identity.epoch)
