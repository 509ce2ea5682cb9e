"""What writing tasks do: put rows into record batches, and send these while the next are put together."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from penstock.client.cluster import Cluster
from penstock.client.errors import ConfigurationError
from penstock.client.partitions import TopicPartition
from penstock.client.shared_transaction import Identity
from penstock.spark.encoding import encoded
from penstock.spark.placing import Layout, placed
from penstock.spark.sending import Sending, Target, WritePlan, Writer
from penstock.spark.turns import OwnTurns, TurnTaker
from penstock.wire.messages.init_producer_id import InitProducerIdRequest


def write(plan: WritePlan, layout: Layout, rows: Iterable[pa.RecordBatch], turns: TurnTaker) -> int:
    """Write all rows; returns how many there were when everything is acknowledged."""
    with _connected(plan.target) as cluster:
        return _send_all(plan, layout, rows, Writer(plan, cluster, turns))


def write_at_least_once(target: Target, rows: Iterable[pa.RecordBatch]) -> int:
    """Write all rows in no transaction, under a producer id of its own; returns how many there were.

    A retry of a request does not double records, a retry of a task does.
    """
    with _connected(target) as cluster:
        layout = layout_of(cluster, target)
        plan = WritePlan(target, places_of(layout), _new_identity(cluster), is_transactional=False)
        return _send_all(plan, layout, rows, Writer(plan, cluster, OwnTurns(len(plan.places))))


def _connected(target: Target) -> Cluster:
    return Cluster(target.bootstrap, client_id="penstock-spark", timeout_s=target.timeout_s)


def _send_all(plan: WritePlan, layout: Layout, rows: Iterable[pa.RecordBatch], writer: Writer) -> int:
    with Sending(writer) as sending:
        for records in encoded(placed(layout, rows), len(plan.places), plan.target.codec):
            sending.put(records)
    return writer.count


def _new_identity(cluster: Cluster) -> Identity:
    request = InitProducerIdRequest(transaction_timeout_ms=60_000)
    response = cluster.retrying("get a producer id", lambda: cluster.any_broker().call(request))
    return Identity("", response.producer_id, response.producer_epoch)


def layout_of(cluster: Cluster, target: Target) -> Layout:
    """The topics to write to, as they are now."""
    found = cluster.topics(target.topics)
    missing = [name for name in target.topics if name not in found]
    if missing:
        raise ConfigurationError(f"there is no topic {', '.join(missing)}: create it first")
    return Layout({name: len(found[name].leaders) for name in target.topics}, target.default_topic)


def places_of(layout: Layout) -> tuple[TopicPartition, ...]:
    """All partitions of its topics, as rows number them."""
    return tuple(TopicPartition(topic, index) for topic, count in layout.topics.items() for index in range(count))
