"""ElectLeaders (43), versions 0-2: hand partitions to another leader.

Who asks for all partitions is not told of those that have the right leader already, only of their topics.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from penstock.controller.election import Election
from penstock.wire.errors import ApiError, ErrorCode
from penstock.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.broker.dispatch import Call


async def handle(broker: Broker, request: ElectLeadersRequest, call: Call) -> ElectLeadersResponse:
    try:
        kind = Election(request.election_type)
    except ValueError:
        return ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST)
    wanted: dict[str, Iterable[int]]
    if request.topic_partitions is None:
        wanted = {topic.name: topic.partitions for topic in broker.image.topics.values()}
    else:
        wanted = {topic.topic: dict.fromkeys(topic.partitions) for topic in request.topic_partitions}
    results = []
    for name, indexes in wanted.items():
        partitions = [await _elect(broker, name, index, kind) for index in indexes]
        if request.topic_partitions is None:
            partitions = [result for result in partitions if result.error_code != ErrorCode.ELECTION_NOT_NEEDED]
        results.append(ReplicaElectionResult(topic=name, partition_result=partitions))
    return ElectLeadersResponse(replica_election_results=results)


async def _elect(broker: Broker, name: str, index: int, kind: Election) -> PartitionResult:
    try:
        await broker.controller.elect_leader(name, index, kind)
    except ApiError as error:
        return PartitionResult(partition_id=index, error_code=error.code, error_message=error.message)
    return PartitionResult(partition_id=index)
