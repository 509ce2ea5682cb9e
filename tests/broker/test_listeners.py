from __future__ import annotations

import socket
from typing import Any

import pytest

from penstock.broker.listeners import Listener, advertised, listeners, parse_listener
from penstock.config.broker import BrokerConfig
from penstock.config.definition import InvalidConfig

MAP = ("PLAINTEXT:PLAINTEXT", "OTHER:PLAINTEXT", "SSL:SSL", "SASL:SASL_PLAINTEXT")


def config(*names: str, **fields: Any) -> BrokerConfig:
    return BrokerConfig(listeners=names, listener_security_protocol_map=MAP, **fields)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("PLAINTEXT://127.0.0.1:9092", Listener("PLAINTEXT", "127.0.0.1", 9092)),
        ("PLAINTEXT://:9092", Listener("PLAINTEXT", "", 9092)),
        ("plaintext://localhost:0", Listener("PLAINTEXT", "localhost", 0)),
        ("PLAINTEXT://[::1]:9092", Listener("PLAINTEXT", "::1", 9092)),
        ("PLAINTEXT://[::]:9092", Listener("PLAINTEXT", "::", 9092)),
        ("MY_OWN.name-1://host.example:1", Listener("MY_OWN.NAME-1", "host.example", 1)),
    ],
)
def test_a_listener_is_a_name_a_host_and_a_port(text: str, expected: Listener) -> None:
    assert parse_listener(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "9092",
        "host:9092",
        "PLAINTEXT://",
        "PLAINTEXT://host",
        "PLAINTEXT://host:",
        "://host:1",
        "P://h:x",
        "P://h:1/x",
    ],
)
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InvalidConfig, match="write it as NAME://host:port"):
        parse_listener(text)


@pytest.mark.parametrize("port", [65536, 99999, -1])
def test_a_port_that_does_not_exist_is_refused(port: int) -> None:
    with pytest.raises(InvalidConfig):
        listeners(config(f"PLAINTEXT://host:{port}"))


def test_a_listener_is_shown_as_an_address() -> None:
    assert str(Listener("A", "host", 9092)) == "host:9092"
    assert str(Listener("A", "::1", 9092)) == "[::1]:9092"


def test_several_listeners_are_kept_in_order() -> None:
    found = listeners(config("PLAINTEXT://:9092", "OTHER://h:9093"))
    assert [listener.name for listener in found] == ["PLAINTEXT", "OTHER"]


def test_ports_of_the_systems_choice_may_be_several() -> None:
    assert len(listeners(config("PLAINTEXT://:0", "OTHER://:0"))) == 2


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([], "must name at least one address"),
        (["PLAINTEXT://:1", "PLAINTEXT://:2"], "name of its own"),
        (["PLAINTEXT://:1", "plaintext://:2"], "name of its own"),
        (["PLAINTEXT://:1", "OTHER://:1"], "port of its own"),
        (["UNKNOWN://:1"], "no entry for the listener UNKNOWN"),
        (["SSL://:1"], "only PLAINTEXT is supported"),
        (["SASL://:1"], "listener SASL asks for SASL_PLAINTEXT"),
    ],
)
def test_listeners_that_cannot_be_are_refused(names: list[str], message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        listeners(config(*names))


def test_listener_names_in_the_protocol_map_may_be_in_any_case() -> None:
    found = listeners(BrokerConfig(listeners=("Mine://:1",), listener_security_protocol_map=("mine:plaintext",)))
    assert found == [Listener("MINE", "", 1)]


# ---- what clients are told ----

BOUND = [Listener("PLAINTEXT", "127.0.0.1", 9092), Listener("OTHER", "", 9093)]


def test_without_advertised_listeners_clients_are_told_where_the_broker_listens() -> None:
    assert advertised(config("PLAINTEXT://x:1"), BOUND) == [
        Listener("PLAINTEXT", "127.0.0.1", 9092),
        Listener("OTHER", socket.gethostname(), 9093),
    ]


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::"])
def test_nobody_is_told_to_connect_to_all_addresses(host: str) -> None:
    [told] = advertised(config("PLAINTEXT://x:1"), [Listener("PLAINTEXT", host, 9092)])
    assert told == Listener("PLAINTEXT", socket.gethostname(), 9092)


def test_advertised_addresses_stand_over_the_real_ones() -> None:
    told = advertised(config("PLAINTEXT://x:1", advertised_listeners=("PLAINTEXT://public:19092",)), BOUND)
    assert told[0] == Listener("PLAINTEXT", "public", 19092)
    assert told[1] == Listener("OTHER", socket.gethostname(), 9093)


def test_an_advertised_port_of_zero_is_the_real_one() -> None:
    [told] = advertised(config("PLAINTEXT://x:0", advertised_listeners=("PLAINTEXT://public:0",)), BOUND[:1])
    assert told == Listener("PLAINTEXT", "public", 9092)


def test_an_advertised_listener_must_be_one_of_the_listeners() -> None:
    with pytest.raises(InvalidConfig, match="names WRONG, which is not in 'listeners'"):
        advertised(config("PLAINTEXT://x:1", advertised_listeners=("WRONG://h:1",)), BOUND)


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]"])
def test_an_advertised_address_must_be_one_that_clients_can_reach(host: str) -> None:
    with pytest.raises(InvalidConfig, match="an address that clients can reach"):
        advertised(config("PLAINTEXT://x:1", advertised_listeners=(f"PLAINTEXT://{host}:9092",)), BOUND)
