"""The topics that coordinators keep their state in: made when they are first needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.controller.topics import NewTopic
from penstock.group.coordinator import OFFSETS_TOPIC
from penstock.metadata.image import Topic
from penstock.txn.coordinator import TRANSACTION_TOPIC
from penstock.wire.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from penstock.broker.broker import Broker


async def offsets_topic(broker: Broker) -> Topic:
    """The topic of groups and their committed offsets."""
    config = broker.config
    return broker.image.topics.get(OFFSETS_TOPIC) or await _make(
        broker,
        NewTopic(
            OFFSETS_TOPIC,
            config.offsets_topic_num_partitions,
            _limited(broker, "offsets.topic.replication.factor", config.offsets_topic_replication_factor),
            configs={
                "cleanup.policy": "compact",
                "segment.bytes": str(config.offsets_topic_segment_bytes),
                "compression.type": "producer",
            },
        ),
    )


async def transaction_topic(broker: Broker) -> Topic:
    """The topic of transactional ids."""
    config = broker.config
    min_isr = _limited(broker, "transaction.state.log.min.isr", config.transaction_state_log_min_isr)
    return broker.image.topics.get(TRANSACTION_TOPIC) or await _make(
        broker,
        NewTopic(
            TRANSACTION_TOPIC,
            config.transaction_state_log_num_partitions,
            _limited(
                broker, "transaction.state.log.replication.factor", config.transaction_state_log_replication_factor
            ),
            configs={
                "cleanup.policy": "compact",
                "segment.bytes": str(config.transaction_state_log_segment_bytes),
                "compression.type": "uncompressed",
                "min.insync.replicas": str(min_isr),
                "unclean.leader.election.enable": "false",
            },
        ),
    )


def _limited(broker: Broker, key: str, count: int) -> int:
    """A number of replicas: as it is set, or else no more than there are brokers."""
    if key in broker.settings.static:
        return count
    return min(count, sum(broker.is_active for broker in broker.image.brokers.values()))


async def _make(broker: Broker, wish: NewTopic) -> Topic:
    result = (await broker.controller.create_topics([wish]))[wish.name]
    topic = broker.image.topics.get(wish.name)  # perhaps another request was quicker
    if topic is None:
        detail = result.message if isinstance(result, ApiError) else None
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, detail)
    return topic
