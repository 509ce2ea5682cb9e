"""From Python arguments to librdkafka's settings.

Arguments have Python names; everything else that librdkafka knows goes into `config` under its own name:
https://github.com/confluentinc/librdkafka/blob/master/CONFIGURATION.md
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException

from penstock.client.errors import ConfigurationError
from penstock.client.rdkafka import from_exception

Bootstrap = str | Sequence[str]
Config = Mapping[str, Any]
T = TypeVar("T")

logger = logging.getLogger("penstock.client")

_REPEAT_S = 30.0


class Repetitions(logging.Filter):
    """Lets a line of librdkafka through once in a while: one broker that is away is a line ten times a second."""

    def __init__(self) -> None:
        super().__init__()
        self._said: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is news, whatever numbers are in it."""
        text, now = re.sub(r"\d+ms", "", record.getMessage()), time.monotonic()
        if now - self._said.get(text, -_REPEAT_S) < _REPEAT_S:
            return False
        self._said = {said: at for said, at in self._said.items() if now - at < _REPEAT_S}
        self._said[text] = now
        return True


_rdkafka = logger.getChild("rdkafka")
_rdkafka.addFilter(Repetitions())


def settings(bootstrap: Bootstrap, arguments: Config, config: Config | None, managed: Collection[str] = ()) -> Config:
    """The settings for librdkafka. An argument of None is left to librdkafka's default; `config` has the last word.

    `managed` are settings that the library relies upon; they cannot be changed.
    """
    for key in managed:
        if key in (config or {}):
            raise ConfigurationError(f"config[{key!r}] cannot be set: the client library relies on its own value")
    given = {key: value for key, value in arguments.items() if value is not None}
    return {"bootstrap.servers": addresses(bootstrap), **given, **(config or {})}


def addresses(bootstrap: Bootstrap) -> str:
    """A comma-separated list of host:port, from that or from a list."""
    text = bootstrap if isinstance(bootstrap, str) else ",".join(bootstrap)
    if not text.strip():
        raise ConfigurationError("bootstrap is empty: name at least one broker as host:port")
    return text


def make(kind: Callable[..., T], config: Config) -> T:
    """Make one of librdkafka's clients. What it logs goes to the logger `penstock.client.rdkafka`."""
    try:
        return kind(dict(config), logger=_rdkafka)
    except KafkaException as exception:
        error = exception.args[0]
        if isinstance(error, KafkaError) and error.code() == KafkaError._INVALID_ARG:
            raise ConfigurationError(f"{error.str()}; see librdkafka's CONFIGURATION.md for its settings") from None
        raise from_exception(exception, "start the client") from None
    except (TypeError, ValueError) as exception:
        raise ConfigurationError(f"a setting has a value of the wrong type: {exception}") from None


class LastError:
    """Remembers why brokers could not be reached: librdkafka tells it apart from the request that then times out."""

    def __init__(self) -> None:
        self.text: str | None = None

    def __call__(self, error: KafkaError) -> None:
        if error.code() != KafkaError._ALL_BROKERS_DOWN:
            self.text = error.str()
