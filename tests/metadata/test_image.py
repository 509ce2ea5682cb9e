from __future__ import annotations

import copy
import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.metadata.image import (
    Delta,
    Image,
    PartitionState,
    ResourceType,
    metric_name,
    partition_record,
    snapshot_records,
)
from penstock.metadata.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnknownRecord,
    UnregisterBrokerRecord,
    decode_record,
    encode_record,
)
from penstock.wire.errors import DecodeError

ID = bytes(range(16))
OTHER_ID = bytes(range(1, 17))
DIRECTORY = bytes([7]) * 16
TOPIC, BROKER = ResourceType.TOPIC, ResourceType.BROKER


def broker_record(broker_id: int = 1, **fields: Any) -> RegisterBrokerRecord:
    fields = {
        "incarnation_id": bytes([broker_id]) * 16,
        "broker_epoch": 100 + broker_id,
        "end_points": [BrokerEndpoint(name="PLAINTEXT", host="host", port=9000 + broker_id)],
        "rack": f"rack{broker_id}",
        "fenced": False,
        "log_dirs": [DIRECTORY],
        **fields,
    }
    return RegisterBrokerRecord(broker_id=broker_id, **fields)


def partition(topic_id: bytes = ID, index: int = 0, **fields: Any) -> PartitionRecord:
    fields = {
        "replicas": [1, 2, 3],
        "isr": [1, 2],
        "leader": 1,
        "leader_epoch": 4,
        "partition_epoch": 9,
        "directories": [DIRECTORY] * 3,
        **fields,
    }
    return PartitionRecord(topic_id=topic_id, partition_id=index, **fields)


def config(name: str, value: str | None, *, kind: int = TOPIC, resource: str = "t") -> ConfigRecord:
    return ConfigRecord(resource_type=kind, resource_name=resource, name=name, value=value)


def image_of(*records: Any) -> Image:
    return Image().apply(records, len(records) - 1, 1)[0]


WITH_TOPIC = image_of(TopicRecord(name="t", topic_id=ID), partition(), partition(index=1))


# ---- brokers ----


def test_a_registered_broker_is_known_with_all_it_said() -> None:
    image, delta = Image().apply([broker_record(3)], 17, 5)
    broker = image.brokers[3]
    assert (broker.broker_id, broker.epoch, broker.rack, broker.is_fenced) == (3, 103, "rack3", False)
    assert broker.incarnation_id == bytes([3]) * 16
    assert broker.directories == (DIRECTORY,)
    endpoint = broker.endpoint("PLAINTEXT")
    assert endpoint is not None
    assert (endpoint.host, endpoint.port) == ("host", 9003)
    assert broker.endpoint("SSL") is None
    assert (image.offset, image.epoch) == (17, 5)
    assert delta.changed_brokers == {3}


def test_registering_again_replaces_the_broker() -> None:
    image = image_of(broker_record(3), broker_record(3, broker_epoch=200, rack=None))
    assert (image.brokers[3].epoch, image.brokers[3].rack) == (200, None)


@pytest.mark.parametrize(
    ("change", "attribute", "before", "after"),
    [
        ({"fenced": 1}, "is_fenced", False, True),
        ({"fenced": -1}, "is_fenced", True, False),
        ({"fenced": 0}, "is_fenced", True, True),
        ({"in_controlled_shutdown": 1}, "in_controlled_shutdown", False, True),
        ({"log_dirs": [OTHER_ID]}, "directories", (DIRECTORY,), (OTHER_ID,)),
        ({}, "directories", (DIRECTORY,), (DIRECTORY,)),
    ],
)
def test_a_change_of_a_registration_changes_what_it_names(
    change: dict[str, Any], attribute: str, before: Any, after: Any
) -> None:
    image = image_of(broker_record(3, fenced=before if attribute == "is_fenced" else False))
    assert getattr(image.brokers[3], attribute) == before
    changed, delta = image.apply([BrokerRegistrationChangeRecord(broker_id=3, broker_epoch=103, **change)], 1, 1)
    assert getattr(changed.brokers[3], attribute) == after
    assert delta.changed_brokers == {3}


def test_an_unregistered_broker_is_gone() -> None:
    image, delta = image_of(broker_record(3), broker_record(4)).apply(
        [UnregisterBrokerRecord(broker_id=3, broker_epoch=103)], 2, 1
    )
    assert set(image.brokers) == {4}
    assert delta.changed_brokers == {3}


# ---- topics ----


def test_a_topic_is_found_by_name_and_by_id() -> None:
    topic = WITH_TOPIC.topics["t"]
    assert WITH_TOPIC.topics_by_id[ID] is topic
    assert (topic.name, topic.topic_id, list(topic.partitions)) == ("t", ID, [0, 1])
    assert WITH_TOPIC.partition_count == 2
    assert WITH_TOPIC.partition("t", 1) == PartitionState(
        replicas=(1, 2, 3), isr=(1, 2), leader=1, leader_epoch=4, partition_epoch=9, directories=(DIRECTORY,) * 3
    )
    assert WITH_TOPIC.partition("t", 2) is None
    assert WITH_TOPIC.partition("u", 0) is None


def test_a_new_topic_is_a_change() -> None:
    _, delta = Image().apply([TopicRecord(name="t", topic_id=ID), partition()], 1, 1)
    assert set(delta.changed_topics) == {"t"}
    assert delta.changed_topics["t"].partitions[0].leader == 1
    assert delta.deleted_topics == {}


def test_an_added_partition_is_a_change_of_its_topic() -> None:
    image, delta = WITH_TOPIC.apply([partition(index=2)], 9, 1)
    assert list(image.topics["t"].partitions) == [0, 1, 2]
    assert image.topics["t"] is image.topics_by_id[ID] is delta.changed_topics["t"]
    assert list(WITH_TOPIC.topics["t"].partitions) == [0, 1]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, {}),
        ({"leader": 2}, {"leader": 2, "leader_epoch": 5}),
        ({"leader": 1}, {"leader": 1, "leader_epoch": 5}),  # also when the leader stays
        ({"leader": -1}, {"leader": -1, "leader_epoch": 5}),
        ({"isr": [1]}, {"isr": (1,)}),
        ({"isr": [1, 2, 3], "leader": 3}, {"isr": (1, 2, 3), "leader": 3, "leader_epoch": 5}),
        ({"replicas": [4, 5]}, {"replicas": (4, 5)}),
        ({"adding_replicas": [4]}, {"adding_replicas": (4,)}),
        ({"removing_replicas": [3]}, {"removing_replicas": (3,)}),
        ({"adding_replicas": []}, {"adding_replicas": ()}),
        ({"directories": [OTHER_ID]}, {"directories": (OTHER_ID,)}),
        ({"eligible_leader_replicas": [3]}, {"eligible_leader_replicas": (3,)}),
        ({"leader_recovery_state": 1}, {"leader_recovery_state": 1}),
    ],
)
def test_a_change_of_a_partition_changes_what_it_names_and_the_partition_epoch(
    change: dict[str, Any], expected: dict[str, Any]
) -> None:
    before = WITH_TOPIC.topics["t"].partitions[1]
    record = PartitionChangeRecord(topic_id=ID, partition_id=1, **change)
    image, delta = WITH_TOPIC.apply([record], 9, 1)
    after = image.topics["t"].partitions[1]
    for attribute in PartitionState.__dataclass_fields__:
        wanted = 10 if attribute == "partition_epoch" else expected.get(attribute, getattr(before, attribute))
        assert getattr(after, attribute) == wanted
    assert image.topics["t"].partitions[0] == WITH_TOPIC.topics["t"].partitions[0]
    assert set(delta.changed_topics) == {"t"}
    assert after.has_leader == (after.leader != -1)


def test_a_removed_topic_is_gone_with_its_settings() -> None:
    image, _ = WITH_TOPIC.apply([config("retention.ms", "5"), config("x", "y", resource="u")], 3, 1)
    image, delta = image.apply([RemoveTopicRecord(topic_id=ID)], 4, 1)
    assert (image.topics, image.topics_by_id) == ({}, {})
    assert image.config(TOPIC, "t") == {}
    assert image.config(TOPIC, "u") == {"x": "y"}
    assert delta.changed_topics == {}
    assert delta.deleted_topics["t"].topic_id == ID
    assert delta.deleted_topics["t"].partitions.keys() == {0, 1}


def test_a_topic_that_is_removed_and_made_again_at_once_is_both_deleted_and_new() -> None:
    image, _ = WITH_TOPIC.apply([config("retention.ms", "5")], 3, 1)
    records = [
        RemoveTopicRecord(topic_id=ID),
        TopicRecord(name="t", topic_id=OTHER_ID),
        partition(OTHER_ID),
        config("segment.ms", "7"),
    ]
    image, delta = image.apply(records, 4, 1)
    assert image.topics["t"].topic_id == OTHER_ID
    assert set(image.topics_by_id) == {OTHER_ID}
    assert list(image.topics["t"].partitions) == [0]
    assert image.config(TOPIC, "t") == {"segment.ms": "7"}
    assert delta.deleted_topics["t"].topic_id == ID
    assert delta.changed_topics["t"].topic_id == OTHER_ID


def test_a_topic_that_is_made_and_removed_at_once_was_never_there() -> None:
    records = [
        TopicRecord(name="t", topic_id=ID),
        partition(),
        config("retention.ms", "5"),
        RemoveTopicRecord(topic_id=ID),
    ]
    image, delta = Image().apply(records, 3, 1)
    assert (image.topics, image.topics_by_id, image.configs) == ({}, {}, {})
    assert (delta.changed_topics, delta.deleted_topics) == ({}, {})


def test_a_topic_that_is_changed_and_removed_at_once_is_deleted_as_it_was_before() -> None:
    image, delta = WITH_TOPIC.apply(
        [PartitionChangeRecord(topic_id=ID, partition_id=0, leader=2), RemoveTopicRecord(topic_id=ID)], 3, 1
    )
    assert image.topics == {}
    assert delta.changed_topics == {}
    assert set(delta.deleted_topics) == {"t"}


def test_several_changes_of_a_partition_add_up() -> None:
    changes = [
        PartitionChangeRecord(topic_id=ID, partition_id=0, leader=2),
        PartitionChangeRecord(topic_id=ID, partition_id=0, isr=[2]),
        PartitionChangeRecord(topic_id=ID, partition_id=0, leader=3),
    ]
    image, _ = WITH_TOPIC.apply(changes, 3, 1)
    state = image.topics["t"].partitions[0]
    assert (state.leader, state.leader_epoch, state.partition_epoch, state.isr) == (3, 6, 12, (2,))


def test_names_that_metrics_cannot_tell_apart_are_remembered() -> None:
    assert metric_name("a.b_c") == "a_b_c"
    image = image_of(TopicRecord(name="a.b", topic_id=ID), TopicRecord(name="plain", topic_id=OTHER_ID))
    assert image.topics_by_metric_name == {"a_b": "a.b"}
    image, _ = image.apply([RemoveTopicRecord(topic_id=ID)], 3, 1)
    assert image.topics_by_metric_name == {}


# ---- settings, features, producer ids ----


def test_settings_are_set_changed_and_deleted() -> None:
    image, delta = Image().apply([config("a", "1"), config("b", "2"), config("a", "3")], 2, 1)
    assert image.config(TOPIC, "t") == {"a": "3", "b": "2"}
    assert delta.changed_configs == {(TOPIC, "t")}
    image, delta = image.apply([config("b", None), config("never.set", None)], 3, 1)
    assert image.config(TOPIC, "t") == {"a": "3"}
    assert delta.changed_configs == {(TOPIC, "t")}
    image, _ = image.apply([config("a", None)], 4, 1)
    assert image.configs == {}


def test_settings_of_topics_brokers_and_all_brokers_are_apart() -> None:
    image = image_of(
        config("a", "topic", resource="1"),
        config("a", "one", kind=BROKER, resource="1"),
        config("a", "all", kind=BROKER, resource=""),
    )
    assert image.config(TOPIC, "1") == {"a": "topic"}
    assert image.config(BROKER, "1") == {"a": "one"}
    assert image.config(BROKER, "") == {"a": "all"}
    assert image.config(BROKER, "2") == {}


def test_features_have_levels_and_level_zero_removes_them() -> None:
    image = image_of(
        FeatureLevelRecord(name="metadata.version", feature_level=7), FeatureLevelRecord(name="x", feature_level=1)
    )
    assert image.features == {"metadata.version": 7, "x": 1}
    image, _ = image.apply(
        [FeatureLevelRecord(name="metadata.version", feature_level=9), FeatureLevelRecord(name="x", feature_level=0)],
        2,
        1,
    )
    assert image.features == {"metadata.version": 9}


def test_the_next_producer_id_is_the_last_one_recorded() -> None:
    assert Image().next_producer_id == 0
    image = image_of(ProducerIdsRecord(next_producer_id=1000), ProducerIdsRecord(next_producer_id=2000))
    assert image.next_producer_id == 2000
    assert image.apply([], 5, 1)[0].next_producer_id == 2000


def test_records_of_unknown_types_change_nothing() -> None:
    image, delta = WITH_TOPIC.apply([UnknownRecord(99)], 7, 3)
    assert image.topics is WITH_TOPIC.topics
    assert (image.offset, image.epoch) == (7, 3)
    assert delta == Delta({}, {}, frozenset(), frozenset())


# ---- the whole ----


NAMES = ("a", "b.c", "d_e", "f-g")


def history(script: list[tuple[str, int, int]]) -> list[Any]:
    """Records that a controller could have written, one after the other."""
    records: list[Any] = []
    topics: dict[str, tuple[bytes, int]] = {}
    brokers: set[int] = set()
    for serial, (what, first, second) in enumerate(script, 1):
        name = NAMES[first % len(NAMES)]
        if what == "topic":
            if name in topics:
                records.append(RemoveTopicRecord(topic_id=topics.pop(name)[0]))
            else:
                topic_id = serial.to_bytes(16, "big")
                count = second % 3 + 1
                topics[name] = (topic_id, count)
                records.append(TopicRecord(name=name, topic_id=topic_id))
                records += [partition(topic_id, index, leader=index, replicas=[index, 9]) for index in range(count)]
        elif what == "partition" and name in topics:
            topic_id, count = topics[name]
            topics[name] = (topic_id, count + 1)
            records.append(partition(topic_id, count, eligible_leader_replicas=[second] if second % 2 else None))
        elif what == "change" and name in topics:
            topic_id, count = topics[name]
            fields: list[dict[str, Any]] = [{"leader": second}, {"isr": [second]}, {"directories": [DIRECTORY]}]
            fields += [{"adding_replicas": [5]}, {"removing_replicas": []}, {"leader_recovery_state": 1}]
            chosen = fields[second % len(fields)]
            records.append(PartitionChangeRecord(topic_id=topic_id, partition_id=second % count, **chosen))
        elif what == "broker":
            if first in brokers and second % 3 == 0:
                brokers.discard(first)
                records.append(UnregisterBrokerRecord(broker_id=first))
            elif first in brokers and second % 3 == 1:
                records.append(BrokerRegistrationChangeRecord(broker_id=first, fenced=second % 2 * 2 - 1))
            else:
                brokers.add(first)
                records.append(broker_record(first, broker_epoch=serial))
        elif what == "config":
            kind = TOPIC if name in topics else BROKER
            value = None if second % 4 == 0 else str(second)
            records.append(config(f"key{second % 3}", value, kind=kind, resource=name if kind == TOPIC else ""))
        elif what == "feature":
            records.append(FeatureLevelRecord(name=name, feature_level=second % 3))
        elif what == "ids":
            records.append(ProducerIdsRecord(broker_id=1, next_producer_id=serial * 1000))
    return records


scripts = st.lists(
    st.tuples(
        st.sampled_from(["topic", "topic", "partition", "change", "broker", "config", "feature", "ids"]),
        st.integers(0, 5),
        st.integers(0, 11),
    ),
    max_size=40,
)


@settings(deadline=None, max_examples=200)
@given(scripts, st.lists(st.integers(0, 60), max_size=5))
def test_it_does_not_matter_how_records_are_grouped(script: list[tuple[str, int, int]], cuts: list[int]) -> None:
    records = history(script)
    at_once, _ = Image().apply(records, 99, 1)
    image = Image()
    edges = [0, *sorted(cut for cut in cuts if cut < len(records)), len(records)]
    for start, end in itertools.pairwise(edges):
        image, _ = image.apply(records[start:end], 99, 1)
    image, _ = image.apply([], 99, 1)
    assert image == at_once
    assert {topic.topic_id: topic for topic in image.topics.values()} == image.topics_by_id


@settings(deadline=None, max_examples=200)
@given(scripts, scripts)
def test_an_image_never_changes_and_the_delta_tells_the_difference(
    script: list[tuple[str, int, int]], more: list[tuple[str, int, int]]
) -> None:
    records = history([*script, *more])
    count = len(history(script))
    before, _ = Image().apply(records[:count], 1, 1)
    kept = copy.deepcopy(before)
    after, delta = before.apply(records[count:], 2, 1)
    assert before == kept
    for name in before.topics.keys() | after.topics.keys():
        old, new = before.topics.get(name), after.topics.get(name)
        if new is not None and new != old:
            assert delta.changed_topics[name] == new
        if old is not None and (new is None or new.topic_id != old.topic_id):
            assert delta.deleted_topics[name] == old
    for name in delta.deleted_topics:
        assert before.topics[name].topic_id not in after.topics_by_id
    for broker_id in before.brokers.keys() | after.brokers.keys():
        if before.brokers.get(broker_id) != after.brokers.get(broker_id):
            assert broker_id in delta.changed_brokers
    for resource in before.configs.keys() | after.configs.keys():
        is_of_deleted = resource[0] == TOPIC and resource[1] in delta.deleted_topics
        if before.configs.get(resource) != after.configs.get(resource) and not is_of_deleted:
            assert resource in delta.changed_configs


@settings(deadline=None, max_examples=200)
@given(scripts)
def test_a_snapshot_builds_the_same_image_from_nothing(script: list[tuple[str, int, int]]) -> None:
    image, _ = Image().apply(history(script), 99, 3)
    written = [encode_record(record) for record in snapshot_records(image)]
    again, _ = Image().apply([decode_record(value) for value in written], 99, 3)
    assert again == image


# ---- records in bytes ----


@pytest.mark.parametrize(
    "record",
    [
        broker_record(5, features=[BrokerFeature(name="f", min_supported_version=1, max_supported_version=2)]),
        UnregisterBrokerRecord(broker_id=5, broker_epoch=6),
        TopicRecord(name="tøpic", topic_id=ID),
        partition(eligible_leader_replicas=[4], last_known_elr=[5], adding_replicas=[6], removing_replicas=[7]),
        config("a", None),
        config("a", ""),
        PartitionChangeRecord(partition_id=3, topic_id=ID),
        PartitionChangeRecord(partition_id=3, topic_id=ID, isr=[], leader=-1, replicas=[1], leader_recovery_state=0),
        RemoveTopicRecord(topic_id=ID),
        FeatureLevelRecord(name="x", feature_level=3),
        ProducerIdsRecord(broker_id=1, broker_epoch=2, next_producer_id=3),
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=2, fenced=-1, in_controlled_shutdown=1, log_dirs=[ID]),
        BeginTransactionRecord(name="t"),
        EndTransactionRecord(),
        AbortTransactionRecord(reason="r"),
    ],
)
def test_every_record_survives_the_way_to_bytes_and_back(record: Any) -> None:
    assert decode_record(encode_record(record)) == record


def test_a_record_in_bytes_is_kafkas() -> None:
    value = encode_record(TopicRecord(name="ab", topic_id=ID))
    assert value == b"\x01\x02\x00" + b"\x03ab" + ID + b"\x00"


def test_a_record_of_a_type_that_is_not_used_here_is_skipped() -> None:
    assert decode_record(b"\x01\x63\x00whatever") == UnknownRecord(0x63)


@pytest.mark.parametrize("value", [None, b"", b"\x01", b"\x01\x02", b"\x02\x02\x00\x03ab" + ID + b"\x00"])
def test_a_value_that_is_no_record_is_refused(value: bytes | None) -> None:
    with pytest.raises(DecodeError):
        decode_record(value)


@pytest.mark.parametrize("version", [1, 9, 127, 255])
def test_a_version_that_is_not_known_is_refused(version: int) -> None:
    with pytest.raises(DecodeError):
        decode_record(bytes([1, 2, version]) + b"\x03ab" + ID + b"\x00")


def test_a_partitions_record_says_all_of_its_state() -> None:
    state = PartitionState((1, 2), (1,), 1, 3, 4, (5,), (6,), (DIRECTORY, ID), (2,), 1)
    image, _ = Image().apply([TopicRecord(name="t", topic_id=ID), partition_record(ID, 7, state)], 1, 1)
    assert image.partition("t", 7) == state
