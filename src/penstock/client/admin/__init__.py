"""The admin client. Start reading at `client`; each subject has a module of operations; `session` says how they wait.

For users, who find the names here.
"""

from penstock.client.admin.client import Admin, AsyncAdmin
from penstock.client.admin.descriptions import (
    ClusterDescription,
    ConfigEntry,
    GroupDescription,
    GroupListing,
    LogDirDescription,
    MemberDescription,
    NewTopic,
    Node,
    OffsetAndMetadata,
    OffsetInfo,
    OpenTransaction,
    PartitionDescription,
    PartitionLag,
    ReplicaSize,
    Resource,
    ResourceType,
    TopicDescription,
    TransactionDescription,
    TransactionListing,
)

__all__ = [
    "Admin",
    "AsyncAdmin",
    "ClusterDescription",
    "ConfigEntry",
    "GroupDescription",
    "GroupListing",
    "LogDirDescription",
    "MemberDescription",
    "NewTopic",
    "Node",
    "OffsetAndMetadata",
    "OffsetInfo",
    "OpenTransaction",
    "PartitionDescription",
    "PartitionLag",
    "ReplicaSize",
    "Resource",
    "ResourceType",
    "TopicDescription",
    "TransactionDescription",
    "TransactionListing",
]
