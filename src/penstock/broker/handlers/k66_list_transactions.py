"""ListTransactions (66), versions 0-2: the transactional ids that this broker coordinates."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.txn.transaction import State, Transaction
from penstock.wire.errors import ApiError, ErrorCode
from penstock.wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.broker.dispatch import Call

# States that Kafka knows and nobody is in here.
_OTHER_STATES = {"Dead", "PrepareEpochFence"}
_STATES = {state.label for state in State} | _OTHER_STATES


def handle(broker: Broker, request: ListTransactionsRequest, call: Call) -> ListTransactionsResponse:
    if not all(shard.is_loaded for shard in broker.transactions.shards):
        return ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    try:
        matches = _matcher(request.transactional_id_pattern or "")
    except ApiError as error:
        return ListTransactionsResponse(error_code=error.code)
    now_ms = broker.clock.time_ms()

    def is_wanted(txn: Transaction) -> bool:
        return (
            (not request.state_filters or txn.state.label in request.state_filters)
            and (not request.producer_id_filters or txn.producer_id in request.producer_id_filters)
            and (request.duration_filter < 0 or now_ms - txn.start_ms > request.duration_filter)
            and matches(txn.transactional_id)
        )

    return ListTransactionsResponse(
        unknown_state_filters=[name for name in request.state_filters if name not in _STATES],
        transaction_states=[
            TransactionState(txn.transactional_id, txn.producer_id, txn.state.label)
            for txn in broker.transactions.all()
            if is_wanted(txn)
        ],
    )


def _matcher(pattern: str) -> Callable[[str], bool]:
    """Whether an id matches; the expression is a stranger's, so it runs in RE2."""
    if not pattern:
        return lambda transactional_id: True
    import re2  # few brokers ever need it

    options = re2.Options()
    options.log_errors = False
    try:
        matches = re2.compile(pattern, options).fullmatch
    except re2.error as error:
        raise ApiError(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from None
    return lambda transactional_id: matches(transactional_id) is not None
