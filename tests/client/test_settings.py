"""What librdkafka says, and how often it gets to say it."""

from __future__ import annotations

import logging

import pytest

from penstock import Admin
from penstock.client.errors import Unreachable
from tests.support.systems import free_port


def test_a_broker_that_is_away_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    port = free_port()
    with (
        caplog.at_level(logging.WARNING, "penstock.client"),
        Admin(f"127.0.0.1:{port}", timeout=1.5) as admin,
        pytest.raises(Unreachable, match="check the address and that the broker runs"),
    ):
        admin.create_topic("t")
    assert [record.name for record in caplog.records if str(port) in record.getMessage()] == ["penstock.client.rdkafka"]
