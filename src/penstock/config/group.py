"""The settings of single groups. What is not set for a group is as the broker has it for all."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.config.broker import BrokerConfig
from penstock.config.definition import INT, InvalidConfig, at_least, keys, parse, setting, settings


@settings
class GroupConfig:
    """All settings of a group with the consumer protocol."""

    consumer_heartbeat_interval_ms: int = setting(
        "consumer.heartbeat.interval.ms",
        INT,
        default=5_000,
        check=at_least(1),
        synonyms=("group.consumer.heartbeat.interval.ms",),
        doc="How often members of this group are asked to send heartbeats.",
    )
    consumer_session_timeout_ms: int = setting(
        "consumer.session.timeout.ms",
        INT,
        default=45_000,
        check=at_least(1),
        synonyms=("group.consumer.session.timeout.ms",),
        doc="After how long without a heartbeat a member of this group is removed.",
    )


def group_config(broker: BrokerConfig, overrides: Mapping[str, str]) -> GroupConfig:
    """A group's settings. Those that nobody knows here are ignored: another broker may have taken them."""
    of_broker = keys(BrokerConfig)
    return GroupConfig(
        **{
            key.attribute: parse(key, overrides[name])
            if name in overrides
            else getattr(broker, of_broker[key.synonyms[0]].attribute)
            for name, key in keys(GroupConfig).items()
        }
    )


def check_limits(broker: BrokerConfig, config: GroupConfig, overrides: Mapping[str, str]) -> None:
    """Refuse what the broker does not let groups have (Kafka: GroupConfig.validate). Raises InvalidConfig."""
    limits = {
        "consumer.heartbeat.interval.ms": (
            config.consumer_heartbeat_interval_ms,
            broker.group_consumer_min_heartbeat_interval_ms,
            broker.group_consumer_max_heartbeat_interval_ms,
        ),
        "consumer.session.timeout.ms": (
            config.consumer_session_timeout_ms,
            broker.group_consumer_min_session_timeout_ms,
            broker.group_consumer_max_session_timeout_ms,
        ),
    }
    for name, (value, low, high) in limits.items():
        limit_name = name.removeprefix("consumer.")
        if name in overrides and value < low:
            raise InvalidConfig(f"{name} must be greater than or equal to group.consumer.min.{limit_name}")
        if name in overrides and value > high:
            raise InvalidConfig(f"{name} must be less than or equal to group.consumer.max.{limit_name}")
    if config.consumer_session_timeout_ms <= config.consumer_heartbeat_interval_ms:
        raise InvalidConfig("consumer.session.timeout.ms must be greater than consumer.heartbeat.interval.ms")
