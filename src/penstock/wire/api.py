"""The APIs: their keys, the versions spoken here, their messages.

The messages of an API are imported, and each version's codec compiled, on first use: a broker that nobody asks for
DescribeLogDirs never loads it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from importlib import import_module

from penstock.wire import schema
from penstock.wire._codec import Codec


class ApiKey(IntEnum):
    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    DESCRIBE_LOG_DIRS = 35
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75


@dataclass(frozen=True)
class Api:
    """One API: its key, its lowest and highest version, the version from which its messages are flexible."""

    key: ApiKey
    low: int
    high: int
    flexible: int

    @cached_property
    def name(self) -> str:
        """The name as the protocol spells it: "CreateTopics"."""
        return "".join(word.capitalize() for word in self.key.name.split("_"))

    @cached_property
    def request_type(self) -> type:
        return self._message("Request")

    @cached_property
    def response_type(self) -> type:
        return self._message("Response")

    def _message(self, kind: str) -> type:
        module = import_module(f"penstock.wire.messages.{self.key.name.lower()}")
        found: type = getattr(module, self.name + kind)
        return found

    def supports(self, version: int) -> bool:
        return self.low <= version <= self.high

    def request_codec(self, version: int) -> Codec:
        return schema.codec(self.request_type, version)

    def response_codec(self, version: int) -> Codec:
        return schema.codec(self.response_type, version)

    def has_flexible_request_header(self, version: int) -> bool:
        return version >= self.flexible

    def has_flexible_response_header(self, version: int) -> bool:
        """ApiVersions answers with the oldest header: its client does not know yet what we speak."""
        return version >= self.flexible and self.key != ApiKey.API_VERSIONS


def _api(key: ApiKey, versions: str, flexible: int) -> Api:
    low, _, high = versions.partition("-")
    return Api(key, int(low), int(high or low), flexible)


APIS: dict[int, Api] = {
    api.key: api
    for api in (
        _api(ApiKey.PRODUCE, "3-13", flexible=9),
        _api(ApiKey.FETCH, "4-18", flexible=12),
        _api(ApiKey.LIST_OFFSETS, "1-11", flexible=6),
        _api(ApiKey.METADATA, "0-13", flexible=9),
        _api(ApiKey.OFFSET_COMMIT, "2-10", flexible=8),
        _api(ApiKey.OFFSET_FETCH, "1-10", flexible=6),
        _api(ApiKey.FIND_COORDINATOR, "0-6", flexible=3),
        _api(ApiKey.JOIN_GROUP, "0-9", flexible=6),
        _api(ApiKey.HEARTBEAT, "0-4", flexible=4),
        _api(ApiKey.LEAVE_GROUP, "0-5", flexible=4),
        _api(ApiKey.SYNC_GROUP, "0-5", flexible=4),
        _api(ApiKey.DESCRIBE_GROUPS, "0-6", flexible=5),
        _api(ApiKey.LIST_GROUPS, "0-5", flexible=3),
        _api(ApiKey.API_VERSIONS, "0-4", flexible=3),
        _api(ApiKey.CREATE_TOPICS, "0-7", flexible=5),
        _api(ApiKey.DELETE_TOPICS, "0-6", flexible=4),
        _api(ApiKey.DELETE_RECORDS, "0-2", flexible=2),
        _api(ApiKey.INIT_PRODUCER_ID, "0-5", flexible=2),
        _api(ApiKey.OFFSET_FOR_LEADER_EPOCH, "2-4", flexible=4),
        _api(ApiKey.ADD_PARTITIONS_TO_TXN, "0-5", flexible=3),
        _api(ApiKey.ADD_OFFSETS_TO_TXN, "0-4", flexible=3),
        _api(ApiKey.END_TXN, "0-5", flexible=3),
        _api(ApiKey.WRITE_TXN_MARKERS, "1-2", flexible=1),
        _api(ApiKey.TXN_OFFSET_COMMIT, "0-5", flexible=3),
        _api(ApiKey.DESCRIBE_CONFIGS, "0-4", flexible=4),
        _api(ApiKey.ALTER_CONFIGS, "0-2", flexible=2),
        _api(ApiKey.DESCRIBE_LOG_DIRS, "0-5", flexible=2),
        _api(ApiKey.CREATE_PARTITIONS, "0-3", flexible=2),
        _api(ApiKey.DELETE_GROUPS, "0-2", flexible=2),
        _api(ApiKey.ELECT_LEADERS, "0-2", flexible=2),
        _api(ApiKey.INCREMENTAL_ALTER_CONFIGS, "0-1", flexible=1),
        _api(ApiKey.ALTER_PARTITION_REASSIGNMENTS, "0-1", flexible=0),
        _api(ApiKey.LIST_PARTITION_REASSIGNMENTS, "0", flexible=0),
        _api(ApiKey.OFFSET_DELETE, "0", flexible=1),
        _api(ApiKey.DESCRIBE_CLUSTER, "0-2", flexible=0),
        _api(ApiKey.DESCRIBE_PRODUCERS, "0", flexible=0),
        _api(ApiKey.DESCRIBE_TRANSACTIONS, "0", flexible=0),
        _api(ApiKey.LIST_TRANSACTIONS, "0-2", flexible=0),
        _api(ApiKey.CONSUMER_GROUP_HEARTBEAT, "0-1", flexible=0),
        _api(ApiKey.CONSUMER_GROUP_DESCRIBE, "0-1", flexible=0),
        _api(ApiKey.LIST_CONFIG_RESOURCES, "0-1", flexible=0),
        _api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, "0", flexible=0),
    )
}
