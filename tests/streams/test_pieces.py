"""How a topology is cut into queries, and how it is shown."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from penstock.client.errors import ConfigurationError
from penstock.streams import TEXT, Application, Stream, col, fn, json, tumbling
from penstock.streams.draw import layers
from penstock.streams.graph import Graph, Vertex, graph_of
from penstock.streams.pieces import Pieces, cut


def _start(**settings: str) -> tuple[Application, Stream]:
    app = Application("shop", key=TEXT, value=json("customer STRING, amount DOUBLE"))
    return app, app.stream("orders")


def _shown(pieces: Pieces) -> list[tuple[str, list[str], list[str]]]:
    return [
        (piece.name, [one.name for one in piece.inputs], [one.name for one in piece.outputs]) for piece in pieces.pieces
    ]


def test_steps_without_state_are_one_query() -> None:
    app, orders = _start()
    large, small = orders.branch(col.amount > 10, default=True)
    large.to("large")
    small.map_values("amount").to("small")
    assert _shown(cut(app.topology)) == [("shop-sink-1", ["stream-1"], ["sink-1", "sink-2"])]


def test_streams_that_have_nothing_in_common_are_queries_of_their_own() -> None:
    app, orders = _start()
    orders.to("a")
    app.stream("clicks").to("b")
    assert [piece.name for piece in cut(app.topology).pieces] == ["shop-sink-1", "shop-sink-2"]


def test_a_step_with_state_shares_a_query_with_what_follows() -> None:
    app, orders = _start()
    counts = orders.group_by_key().count()
    counts.to_stream().to("a")
    counts.filter("value > 5").to_stream().to("b")
    pieces = cut(app.topology)
    assert _shown(pieces) == [("shop-count-1", ["stream-1"], ["sink-1", "sink-2"])]
    assert pieces.internal == {}


def test_a_step_with_state_after_another_reads_an_internal_topic() -> None:
    app, orders = _start()
    per_customer = orders.group_by(col.customer).aggregate(total=fn.sum(col.amount)).to_stream()
    per_customer.group_by(col.total).count(step="spread").to_stream().to("spread")
    pieces = cut(app.topology)
    assert _shown(pieces) == [
        ("shop-aggregate-1", ["stream-1"], ["select-key-2"]),
        ("shop-spread", ["select-key-2"], ["sink-1"]),
    ]
    (topic,) = pieces.internal.values()
    assert (topic.name, topic.cleanup_policy) == ("shop-select-key-2-repartition", "delete")


def test_a_table_that_is_joined_is_a_compacted_topic() -> None:
    app, orders = _start()
    counts = orders.group_by_key().count()
    counts.join(app.table("users")).to_stream().to("out")
    (topic,) = cut(app.topology).internal.values()
    assert (topic.name, topic.cleanup_policy) == ("shop-count-1-changelog", "compact")


def test_two_users_of_an_internal_topic_share_it() -> None:
    app, orders = _start()
    counts = orders.group_by_key().count().to_stream()
    counts.group_by("value").count().to_stream().to("a")
    counts.group_by("value % 2").count().to_stream().to("b")
    assert len(cut(app.topology).internal) == 2
    app, orders = _start()
    counts = orders.group_by_key().count().to_stream()
    counts.group_by_key().count().to_stream().to("a")
    counts.group_by_key().reduce(max).to_stream().to("b")
    assert [topic.name for topic in cut(app.topology).internal.values()] == ["shop-to-stream-1-repartition"]


def test_merging_what_is_in_different_queries_goes_through_topics() -> None:
    app, orders = _start()
    counts = orders.group_by_key().count().to_stream().map_values("cast(value AS DOUBLE)")
    orders.map_values("amount").merge(counts).to("out")
    pieces = cut(app.topology)
    assert [topic.name for topic in pieces.internal.values()] == ["shop-map-values-1-repartition"]
    assert _shown(pieces)[1] == ("shop-sink-1", ["stream-1", "map-values-1"], ["sink-1"])


def test_merging_branches_of_one_query_needs_no_topic() -> None:
    app, orders = _start()
    counts = orders.group_by_key().count().to_stream()
    counts.filter("value > 1").merge(counts.filter("value < 1")).to("out")
    assert cut(app.topology).internal == {}


def test_repartition_makes_a_topic_with_so_many_partitions() -> None:
    app, orders = _start()
    orders.repartition(12, step="spread").to("out")
    pieces = cut(app.topology)
    (topic,) = pieces.internal.values()
    assert (topic.name, topic.partitions) == ("shop-spread-repartition", 12)
    assert _shown(pieces) == [("shop-spread", ["stream-1"], ["spread"]), ("shop-sink-1", ["spread"], ["sink-1"])]


def test_a_table_under_new_keys_gets_their_order_from_a_topic() -> None:
    app, orders = _start()
    orders.to_table().to_stream().to("old-keys")
    orders.select_key(col.customer).to_table().to_stream().to("new-keys")
    assert [topic.name for topic in cut(app.topology).internal.values()] == ["shop-repartition-1-repartition"]


def test_steps_that_lead_nowhere_are_left_out() -> None:
    app, orders = _start()
    orders.group_by_key().window(tumbling("1 minute")).count().suppress().to_stream().to("out")
    assert [piece.name for piece in cut(app.topology).pieces] == ["shop-suppress-1"]


def test_describe_shows_queries_with_their_steps() -> None:
    app, orders = _start()
    counts = orders.filter(col.amount > 10).group_by(col.customer, key=TEXT).count()
    counts.to_stream().group_by("value", key=TEXT).count(step="spread").to_stream().to("spread")
    assert (
        app.describe()
        == """\
Application shop

Query 0: shop-count-1
  Source: stream-1 (orders (text, json))
    --> filter-1
  Processor: filter-1 (amount > 10)
    --> select-key-1
    <-- stream-1
  Processor: select-key-1 (key: customer)
    --> count-1
    <-- filter-1
  Processor: count-1 (count; store: count-1)
    --> to-stream-1
    <-- select-key-1
  Processor: to-stream-1
    --> select-key-2
    <-- count-1
  Processor: select-key-2 (key: value)
    --> shop-select-key-2-repartition
    <-- to-stream-1
  Sink: shop-select-key-2-repartition (internal, delete)
    <-- select-key-2

Query 1: shop-spread
  Source: shop-select-key-2-repartition (internal, delete)
    --> spread
  Processor: spread (count; store: spread)
    --> to-stream-2
    <-- shop-select-key-2-repartition
  Processor: to-stream-2
    --> sink-1
    <-- spread
  Sink: sink-1 (spread (text, long))
    <-- to-stream-2
"""
    )


def test_a_drawing_has_topics_steps_and_what_flows_between() -> None:
    app, orders = _start()
    orders.filter("customer = '<a & b>'").group_by_key().count().to_stream().to("out")
    graph = graph_of(app.topology)
    flows = {(graph.vertices[start].label, graph.vertices[end].label) for start, end in graph.edges}
    assert flows == {
        ("orders", "filter-1"),
        ("filter-1", "count-1"),
        ("count-1", "to-stream-1"),
        ("to-stream-1", "out"),
    }
    mermaid = app.draw("mermaid")
    assert mermaid.startswith("flowchart LR\n")
    assert mermaid.count(" --> ") == 4
    assert "&lt;a &amp; b&gt;" in mermaid
    svg = ElementTree.fromstring(app.draw("svg"))
    names = {element.text for element in svg.iter("{http://www.w3.org/2000/svg}text")}
    assert {"orders", "filter-1", "count-1", "to-stream-1", "out"} <= names


def test_boxes_do_not_overlap_and_arrows_go_to_the_right() -> None:
    diamond = Graph([Vertex("step", str(n)) for n in range(5)], [(0, 1), (0, 2), (1, 3), (2, 3), (0, 4), (4, 3)])
    assert layers(diamond) == [[0], [1, 2, 4], [3]]
    assert layers(Graph()) == []


def test_there_are_two_forms_of_drawings() -> None:
    app, orders = _start()
    orders.to("out")
    with pytest.raises(ConfigurationError, match="use 'svg' or 'mermaid'"):
        app.draw("png")


def test_a_global_table_is_shown_as_one() -> None:
    app, orders = _start()
    orders.join(app.global_table("users"), on=col.customer, step="named").to("out", value=json())
    pieces = cut(app.topology)
    assert _shown(pieces) == [("shop-named", ["stream-1", "global-table-1"], ["sink-1"])]
    assert "  Global table: global-table-1 (users (text, json))\n" in app.describe()
    assert "  Processor: named (inner, on customer; store: named)\n" in app.describe()
    assert "global table: text, json" in app.draw("mermaid")


def test_a_grouped_table_goes_through_a_repartition_topic() -> None:
    app, orders = _start()
    orders.to_table().group_by(col.customer, step="by-customer").count().to_stream().to("out")
    pieces = cut(app.topology)
    assert _shown(pieces) == [
        ("shop-by-customer", ["stream-1"], ["by-customer"]),
        ("shop-count-1", ["by-customer"], ["sink-1"]),
    ]
    (topic,) = pieces.internal.values()
    assert (topic.name, topic.cleanup_policy) == ("shop-by-customer-repartition", "delete")
    assert "  Processor: by-customer (customer; store: by-customer)\n" in app.describe()


def test_a_join_by_a_foreign_key_is_one_query() -> None:
    app, orders = _start()
    counts = orders.group_by_key().count()
    app.table("users").join(counts, on=col.customer, step="joined").to_stream().to("out", value=json())
    pieces = cut(app.topology)
    assert _shown(pieces)[1:] == [("shop-joined", ["table-1", "count-1"], ["sink-1"])]
    assert [topic.name for topic in pieces.internal.values()] == ["shop-count-1-changelog"]
    assert "  Processor: joined (inner, on customer; store: joined)\n" in app.describe()
