"""A real broker for tests, ready in a moment, that misbehaves on request.

    with penstock.testing.broker() as broker:
        producer = Producer(broker.bootstrap)

Start reading at `brokers`; `faults` says how a broker is made to misbehave, `refusals` what its errors look like, and
`plugin` has the fixtures for pytest. For users' tests and ours; nothing in Penstock imports it.

The names are loaded when they are first used: pytest loads the plugin in every run, also where no test wants a broker.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.testing.brokers import ChildBroker, InProcessBroker, RunningBroker, broker
    from penstock.testing.faults import Fault, Faults

__all__ = ["ChildBroker", "Fault", "Faults", "InProcessBroker", "RunningBroker", "broker"]

_FAULTS = ("Fault", "Faults")


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'penstock.testing' has no attribute {name!r}")
    return getattr(import_module(f"penstock.testing.{'faults' if name in _FAULTS else 'brokers'}"), name)
