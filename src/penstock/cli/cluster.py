"""`penstock cluster`: the brokers, what they speak, and their disks."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from penstock.cli.command import command, new_group
from penstock.cli.mistakes import Failure
from penstock.cli.session import Session, addresses
from penstock.client.connection import Connection, ConnectionLost
from penstock.wire.api import APIS
from penstock.wire.messages.api_versions import ApiVersionsRequest

group = new_group("Look at the brokers, what they speak, and their disks.")

_TIMEOUT_S = 5.0
_API_VERSIONS_VERSION = 3


@command(group, "describe")
def describe(session: Session) -> None:
    """Show the cluster's id, its brokers and its controller."""
    with session.admin() as admin:
        cluster = admin.describe_cluster()
        topics = admin.describe_topics()
    controller = None if cluster.controller is None else cluster.controller.id
    brokers = [
        {"id": one.id, "host": one.host, "port": one.port, "rack": one.rack, "controller": one.id == controller}
        for one in cluster.brokers
    ]
    facts: dict[str, Any] = {
        "cluster_id": cluster.cluster_id,
        "controller": controller,
        "topics": len(topics),
        "partitions": sum(len(topic.partitions) for topic in topics),
        "under_replicated": sum(len(p.in_sync) < len(p.replicas) for t in topics for p in t.partitions),
    }
    if session.out.as_json:
        session.out.json({**facts, "brokers": brokers})
        return
    session.out.facts(facts)
    session.out.heading("")
    session.out.rows(brokers, columns=("id", "host", "port", "rack", "controller"))


@command(group, "api-versions")
def api_versions(
    session: Session,
    broker: Annotated[int | None, typer.Option("--broker", help="The broker's id; else the one that answers.")] = None,
) -> None:
    """Show the APIs that a broker serves, in which versions, and which of them Penstock knows."""
    session.check_reachable()
    places = addresses(session.bootstrap)
    if broker is not None:
        with session.admin() as admin:
            brokers = {one.id: (one.host, one.port) for one in admin.describe_cluster().brokers}
        if broker not in brokers:
            raise Failure(f"there is no broker {broker}; there are {', '.join(map(str, brokers))}")
        places = [brokers[broker]]
    rows = []
    for one in _ask(*places[0]).api_keys:
        api = APIS.get(one.api_key)
        rows.append(
            {
                "key": one.api_key,
                "api": None if api is None else api.name,
                "low": one.min_version,
                "high": one.max_version,
                "known": None if api is None else f"{api.low}-{api.high}",
            }
        )
    session.out.rows(sorted(rows, key=lambda row: row["key"]), columns=("key", "api", "low", "high", "known"))


@command(group, "log-dirs")
def log_dirs(
    session: Session,
    topics: Annotated[list[str] | None, typer.Option("--topic", "-t", help="Only this topic. Repeatable.")] = None,
) -> None:
    """Show the data folders of the brokers, and how large the partitions in them are."""
    with session.admin() as admin:
        found = admin.describe_log_dirs(topics=topics)
    if session.out.as_json:
        session.out.json(
            [{**_folder(one), "replicas": [_replica(replica) for replica in one.replicas]} for one in found]
        )
        return
    session.out.rows([_folder(one) for one in found], columns=("broker", "path", "size", "usable", "total", "error"))
    session.out.heading("")
    session.out.rows(
        [{"broker": one.broker, **_replica(replica)} for one in found for replica in one.replicas],
        columns=("broker", "topic", "partition", "size"),
        empty="They are empty.",
    )


def _ask(host: str, port: int) -> Any:
    hello = ApiVersionsRequest(client_software_name="penstock", client_software_version="1")
    try:
        with Connection(host, port, timeout_s=_TIMEOUT_S) as connection:
            return connection.call(hello, _API_VERSIONS_VERSION)
    except (ConnectionLost, OSError) as error:
        raise Failure(f"{host}:{port} does not answer as a broker does: {error}") from None


def _folder(one: Any) -> dict[str, Any]:
    return {
        "broker": one.broker,
        "path": one.path,
        "size": sum(replica.size_bytes for replica in one.replicas),
        "usable": one.usable_bytes,
        "total": one.total_bytes,
        "error": one.error,
    }


def _replica(one: Any) -> dict[str, Any]:
    return {"topic": one.topic, "partition": one.partition, "size": one.size_bytes, "offset_lag": one.offset_lag}
