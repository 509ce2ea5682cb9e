"""What tests against both systems share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.client.connection import Connection
from tests.support.systems import System


@pytest.fixture
def connection(system: System) -> Iterator[Connection]:
    with system.connect() as made:
        yield made
