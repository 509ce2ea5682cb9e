"""Which tests run on which system."""

from __future__ import annotations

import pytest

from tests.support.systems import PENSTOCK_HAS_GROUPS


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The group tests run on Kafka alone until Penstock has groups."""
    if PENSTOCK_HAS_GROUPS:
        return
    waiting = [item for item in items if item.path.name.startswith("test_group") and "penstock" in item.name]
    if waiting:
        config.hook.pytest_deselected(items=waiting)
        items[:] = [item for item in items if item not in waiting]
