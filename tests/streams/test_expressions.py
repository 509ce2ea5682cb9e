from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from penstock.streams import TopologyError, col, fn


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (lambda: col.amount > 10, "amount > 10"),
        (lambda: (col.a + 1) * 2, "(a + 1) * 2"),
        (lambda: 1 - col.a, "1 - a"),
        (lambda: (col.a == "x") & ~(col.b != 3), "(a = 'x') and (not (b != 3))"),
        (lambda: -col.a / 2 % 3, "((-a) / 2) % 3"),
        (lambda: fn.upper(col.name), "upper(name)"),
        (lambda: fn.round(fn.sum(col.amount), scale=2), "round(sum(amount), scale=2)"),
        (lambda: col.order.customer.name, "order.customer.name"),
        (lambda: col.name.startswith("a"), "name.startswith('a')"),
        (lambda: col.tags[0], "tags[0]"),
        (lambda: col["a b"].cast("int"), "a b.cast('int')"),
        (lambda: True | col.a, "True or a"),
    ],
)
def test_expressions_show_what_was_asked_for(expression: Callable[[], Any], text: str) -> None:
    assert repr(expression()) == text


def test_conditions_cannot_be_combined_with_and() -> None:
    with pytest.raises(TopologyError, match=r"test_expressions\.py:\d+: .*combine conditions with &, \| and ~"):
        _ = (col.a > 1) and (col.b > 2)


def test_expressions_cannot_be_looped_over() -> None:
    with pytest.raises(TopologyError, match="flat_map_values"):
        list(col.a)


def test_a_topology_is_built_described_and_drawn_without_spark() -> None:
    program = """
import sys
from penstock.streams import TEXT, Application, col, fn, json, tumbling

app = Application("shop", key=TEXT, value=json("amount DOUBLE"))
orders = app.stream("orders").filter(col.amount > 1).group_by_key()
orders.window(tumbling("1 minute")).aggregate(total=fn.sum(col.amount)).to_stream().to("totals")
assert app.describe() and app.draw("svg") and app.draw("mermaid")
assert not any(name.split(".")[0] in ("pyspark", "py4j", "pyarrow", "pandas") for name in sys.modules)
"""
    subprocess.run([sys.executable, "-c", program], check=True)
