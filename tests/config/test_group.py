from __future__ import annotations

import pytest

from penstock.config.broker import BrokerConfig
from penstock.config.definition import InvalidConfig, keys
from penstock.config.group import GroupConfig, check_limits, group_config

BROKER = BrokerConfig(group_consumer_session_timeout_ms=50_000, group_consumer_heartbeat_interval_ms=7_000)


def test_a_group_without_settings_has_the_brokers() -> None:
    config = group_config(BROKER, {})
    assert (config.consumer_session_timeout_ms, config.consumer_heartbeat_interval_ms) == (50_000, 7_000)


def test_every_setting_falls_back_to_one_of_the_brokers_with_the_same_default() -> None:
    for key in keys(GroupConfig).values():
        (of_broker,) = key.synonyms
        assert keys(BrokerConfig)[of_broker].default == key.default


def test_what_nobody_knows_here_is_ignored() -> None:
    assert group_config(BROKER, {"share.isolation.level": "read_committed"}) == group_config(BROKER, {})


@pytest.mark.parametrize("session_ms", [44_999, 60_001])
def test_limits_are_the_brokers(session_ms: int) -> None:
    overrides = {"consumer.session.timeout.ms": str(session_ms)}
    with pytest.raises(InvalidConfig, match=r"group\.consumer\.m(in|ax)\.session\.timeout\.ms"):
        check_limits(BROKER, group_config(BROKER, overrides), overrides)


def test_limits_are_for_what_is_set_for_the_group_itself() -> None:
    broker = BrokerConfig(group_consumer_heartbeat_interval_ms=10)
    overrides = {"consumer.session.timeout.ms": "46000"}
    check_limits(broker, group_config(broker, overrides), overrides)


def test_a_session_lasts_longer_than_the_pause_between_two_heartbeats() -> None:
    broker = BrokerConfig(group_consumer_max_heartbeat_interval_ms=90_000)
    overrides = {"consumer.heartbeat.interval.ms": "45000"}
    with pytest.raises(InvalidConfig, match=r"must be greater than consumer\.heartbeat\.interval\.ms"):
        check_limits(broker, group_config(broker, overrides), overrides)
