"""How a command reaches the cluster that it is about."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import penstock
from penstock.cli.mistakes import Failure, Mistake
from penstock.cli.output import Output
from penstock.cli.profiles import Profile, Profiles

DEFAULT_BOOTSTRAP = "localhost:9092"
DEFAULT_PORT = 9092

_PROBE_S = 3.0
_REQUEST_S = 15.0
_DELIVERY_S = 30.0


class Session:
    """One run of a command: which cluster it is for, and how it prints.

    The cluster is the one that `--bootstrap` or `--profile` names, else PENSTOCK_BOOTSTRAP, PENSTOCK_PROFILE, the
    profile in use, or this machine's.
    """

    def __init__(self, bootstrap: str | None, profile: str | None, as_json: bool) -> None:
        self.out = Output(as_json)
        chosen = _choose(bootstrap, profile)
        self.bootstrap = chosen.bootstrap
        self._config: Mapping[str, str] = chosen.config

    @contextmanager
    def admin(self) -> Iterator[penstock.Admin]:
        self.check_reachable()
        with penstock.Admin(self.bootstrap, timeout=_REQUEST_S, config=self._config) as admin:
            yield admin

    def producer(self, *, config: Mapping[str, Any] | None = None, **options: Any) -> penstock.Producer:
        options = {"delivery_timeout": _DELIVERY_S, **options}
        return penstock.Producer(self.bootstrap, config={**self._config, **(config or {})}, **options)

    def consumer(self, *, config: Mapping[str, Any] | None = None, **options: Any) -> penstock.Consumer:
        return penstock.Consumer(self.bootstrap, config={**self._config, **(config or {})}, **options)

    def check_reachable(self) -> None:
        """Fail at once if nobody listens: librdkafka would try for as long as it is allowed to."""
        problem = ""
        for host, port in addresses(self.bootstrap):
            try:
                socket.create_connection((host, port), _PROBE_S).close()
                return
            except OSError as error:
                problem = error.strerror or str(error) or "no answer"
        raise Failure(
            f"cannot reach a broker at {self.bootstrap} ({problem.lower()}); "
            "start one with 'penstock broker', or name another with --bootstrap or --profile"
        )

    def confirm(self, question: str, is_agreed: bool) -> None:
        """Ask before something that cannot be undone, unless --yes was given."""
        if is_agreed:
            return
        if not sys.stdin.isatty():
            raise Mistake(f"{question} Say so with --yes: there is no terminal to ask at")
        print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise Failure("nothing was done")


def check_topics(admin: penstock.Admin, names: Iterable[str]) -> None:
    """Fail if a topic does not exist. Asking a broker about it by name could create it."""
    known = admin.list_topics(internal=True)
    for name in names:
        if name not in known:
            raise Failure(
                f"there is no topic {name!r}; 'penstock topic list' shows those that exist, "
                f"'penstock topic create {name}' makes it"
            )


def addresses(bootstrap: str) -> list[tuple[str, int]]:
    """The addresses in "host:port,host:port"."""
    found = []
    for part in bootstrap.split(","):
        host, colon, port = part.strip().rpartition(":")
        if not colon:
            host, port = part.strip(), str(DEFAULT_PORT)
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise Mistake(f"{part.strip()!r} is no address of a broker: write it as host:port")
        found.append((host.strip("[]"), int(port)))
    return found


def _choose(bootstrap: str | None, profile: str | None) -> Profile:
    named = Profiles.load().get(profile) if profile is not None else None
    if bootstrap is not None:
        return Profile(bootstrap, named.config if named is not None else {})
    if named is not None:
        return named
    if os.environ.get("PENSTOCK_BOOTSTRAP"):
        return Profile(os.environ["PENSTOCK_BOOTSTRAP"], {})
    profiles = Profiles.load()
    current = os.environ.get("PENSTOCK_PROFILE") or profiles.current
    return profiles.get(current) if current else Profile(DEFAULT_BOOTSTRAP, {})
