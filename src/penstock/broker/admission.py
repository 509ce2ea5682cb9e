"""Whether a transactional write may be appended: only what belongs to an open transaction will ever be decided.

A partition that a producer's transaction has written to already takes more of it without asking. The first write asks
the coordinator. A client with transaction version 2 has its partitions added by that; an older one has added them
before, and the coordinator is asked whether that is so (KIP-890). Between the coordinator's word and the append nothing
is awaited, or the producer's new epoch after the end of its transaction refuses what comes too late.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.coordination.appends import Committing
from penstock.txn.transaction import VERSION_2, Identity, TopicPartition
from penstock.wire.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from penstock.broker.broker import Broker


class Rules(NamedTuple):
    """What a version of a request means."""

    adds: bool  # the write itself adds its partition to the transaction
    knows_abortable: bool  # its client knows TRANSACTION_ABORTABLE


def admit(
    broker: Broker, rules: Rules, transactional_id: str, who: Identity, partitions: frozenset[TopicPartition]
) -> tuple[dict[TopicPartition, ApiError], Committing]:
    """Ask the coordinator. Returns what is refused, and what to wait for before the rest is appended."""
    try:
        if rules.adds:
            return {}, broker.transactions.add_partitions(transactional_id, who, partitions, VERSION_2)
        if not broker.config.transaction_partition_verification_enable:
            return {}, None
        found = broker.transactions.check_partitions(transactional_id, who, partitions)
    except ApiError as error:
        return dict.fromkeys(partitions, _translated(error, rules)), None
    refused = {
        where: _translated(ApiError(code, f"{where.topic}-{where.partition} is not in the open transaction"), rules)
        for where, code in found.items()
        if code
    }
    return refused, None


def _translated(error: ApiError, rules: Rules) -> ApiError:
    """What a client of this version understands: fencing is a matter of epochs in answers to writes."""
    if error.code == ErrorCode.PRODUCER_FENCED:
        return ApiError(ErrorCode.INVALID_PRODUCER_EPOCH, error.message)
    if error.code == ErrorCode.TRANSACTION_ABORTABLE and not rules.knows_abortable:
        return ApiError(ErrorCode.INVALID_TXN_STATE, error.message)
    return error
