"""Where a broker listens, and under which addresses clients reach it."""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass, replace

from penstock.config.broker import BrokerConfig
from penstock.config.definition import InvalidConfig

_ADDRESS = re.compile(r"(?P<name>[A-Za-z0-9_.-]+)://(?P<host>\[[^]]*\]|[^:]*):(?P<port>-?\d+)")
_SUPPORTED_PROTOCOLS = ("PLAINTEXT",)


@dataclass(frozen=True)
class Listener:
    name: str
    host: str  # empty: all addresses
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_listener(text: str) -> Listener:
    match = _ADDRESS.fullmatch(text)
    if match is None:
        raise InvalidConfig(f"{text!r} is not a listener; write it as NAME://host:port, for example PLAINTEXT://:9092")
    if not 0 <= int(match["port"]) <= 65535:
        raise InvalidConfig(f"{text!r}: a port is a number from 0 to 65535")
    return Listener(match["name"].upper(), match["host"].strip("[]"), int(match["port"]))


def listeners(config: BrokerConfig) -> list[Listener]:
    """The listeners to open. Raises InvalidConfig."""
    found = [parse_listener(text) for text in config.listeners]
    if not found:
        raise InvalidConfig("'listeners' must name at least one address, for example PLAINTEXT://:9092")
    names = [listener.name for listener in found]
    if len(set(names)) < len(names):
        raise InvalidConfig(f"each listener needs a name of its own: {', '.join(names)}")
    ports = [listener.port for listener in found if listener.port]
    if len(set(ports)) < len(ports):
        raise InvalidConfig(f"each listener needs a port of its own: {', '.join(map(str, ports))}")
    protocols = dict(entry.upper().split(":", 1) for entry in config.listener_security_protocol_map if ":" in entry)
    for listener in found:
        protocol = protocols.get(listener.name)
        if protocol is None:
            raise InvalidConfig(f"listener.security.protocol.map has no entry for the listener {listener.name}")
        if protocol not in _SUPPORTED_PROTOCOLS:
            raise InvalidConfig(f"listener {listener.name} asks for {protocol}; only PLAINTEXT is supported so far")
    return found


def advertised(config: BrokerConfig, bound: list[Listener]) -> list[Listener]:
    """The addresses clients are told, for listeners that are bound to real ports. Raises InvalidConfig."""
    given = {listener.name: listener for listener in map(parse_listener, config.advertised_listeners or ())}
    unknown = set(given) - {listener.name for listener in bound}
    if unknown:
        raise InvalidConfig(f"advertised.listeners names {', '.join(sorted(unknown))}, which is not in 'listeners'")
    result = []
    for listener in bound:
        address = given.get(listener.name, listener)
        if address.host in ("0.0.0.0", "::"):
            if listener.name in given:
                raise InvalidConfig(
                    f"advertised.listeners must name an address that clients can reach, not {address.host}"
                )
            address = replace(address, host="")
        if not address.host:
            address = replace(address, host=socket.gethostname())
        if not address.port:
            address = replace(address, port=listener.port)
        result.append(address)
    return result
