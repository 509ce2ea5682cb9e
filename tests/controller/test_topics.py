from __future__ import annotations

from typing import Any

import pytest

from penstock.config.broker import BrokerConfig
from penstock.config.topic import TopicConfig
from penstock.controller import topics
from penstock.controller.topics import NewTopic, add_partitions, check_name, create_topic, delete_topic
from penstock.metadata.image import Image, PartitionState, ResourceType, Topic
from penstock.metadata.records import BrokerRegistrationChangeRecord, RemoveTopicRecord
from penstock.wire.errors import ApiError, ErrorCode
from penstock.wire.types import ZERO_UUID
from tests.controller.samples import ID, broker, image_of, topic

THREE = image_of(broker(1), broker(2, directories=2), broker(3), topic("taken", [1], [2]), topic("with.dot", [1]))
SETTINGS = BrokerConfig(num_partitions=4, default_replication_factor=2)


def create(
    wish: NewTopic, image: Image = THREE, config: BrokerConfig = SETTINGS, start: int = 0
) -> tuple[Topic, TopicConfig, list[Any]]:
    return create_topic(image, wish, config, TopicConfig(), topic_id=ID, start=start)


def refusal(action: Any, *arguments: Any, **options: Any) -> tuple[ErrorCode, str | None]:
    with pytest.raises(ApiError) as caught:
        action(*arguments, **options)
    return caught.value.code, caught.value.message


# ---- names ----


@pytest.mark.parametrize("name", ["a", "A-z_0.9", "..a", "...", "x" * 249, "-", "_"])
def test_legal_names_are_accepted(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "the empty string is not allowed"),
        (".", "'.' is not allowed"),
        ("..", "'..' is not allowed"),
        ("x" * 250, f"the length of '{'x' * 250}' is longer than the max allowed length 249"),
        *[
            (name, f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'")
            for name in ("a b", "a/b", "ä", "a\n", "a:b", "\x00", "٣")
        ],
    ],
)
def test_illegal_names_are_refused(name: str, problem: str) -> None:
    expected = (ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")
    assert refusal(check_name, name) == expected
    assert refusal(create, NewTopic(name, 1, 1)) == expected


def test_a_name_that_is_taken_is_refused() -> None:
    assert refusal(create, NewTopic("taken", 1, 1)) == (
        ErrorCode.TOPIC_ALREADY_EXISTS,
        "Topic 'taken' already exists.",
    )


def test_a_name_that_metrics_could_not_tell_from_another_is_refused() -> None:
    assert refusal(create, NewTopic("with_dot", 1, 1)) == (
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        "Topic 'with_dot' collides with existing topic: with.dot",
    )
    create(NewTopic("withdot", 1, 1))


# ---- creating ----


def test_a_new_topic_has_what_was_asked_for() -> None:
    wish = NewTopic("t", 3, 2, configs={"retention.ms": "5", "cleanup.policy": "compact"})
    made, settings, records = create(wish)
    assert (settings.retention_ms, settings.cleanup_policy) == (5, ("compact",))
    image, delta = THREE.apply(records, 9, 1)
    assert image.topics["t"] == made == delta.changed_topics["t"]
    assert image.config(ResourceType.TOPIC, "t") == {"retention.ms": "5", "cleanup.policy": "compact"}
    assert made.topic_id == ID
    assert list(made.partitions) == [0, 1, 2]
    for state in made.partitions.values():
        assert len(set(state.replicas)) == 2
        assert state.isr == state.replicas
        assert state.leader == state.replicas[0]
        assert (state.leader_epoch, state.partition_epoch) == (0, 0)


def test_without_numbers_the_brokers_defaults_count() -> None:
    made, settings, _ = create(NewTopic("t"))
    assert len(made.partitions) == 4
    assert {len(state.replicas) for state in made.partitions.values()} == {2}
    assert settings == TopicConfig()


def test_a_broker_with_one_directory_leaves_no_choice_of_it() -> None:
    made, _, _ = create(NewTopic("t", 1, 3))
    state = made.partitions[0]
    directories = dict(zip(state.replicas, state.directories, strict=True))
    assert directories == {1: THREE.brokers[1].directories[0], 2: ZERO_UUID, 3: THREE.brokers[3].directories[0]}


def test_fenced_brokers_get_no_replicas() -> None:
    image, _ = THREE.apply([BrokerRegistrationChangeRecord(broker_id=2, fenced=1)], 9, 1)
    made, _, _ = create(NewTopic("t", 8, 2), image)
    assert {replica for state in made.partitions.values() for replica in state.replicas} == {1, 3}
    assert refusal(create, NewTopic("t", 1, 3), image)[0] is ErrorCode.INVALID_REPLICATION_FACTOR


def test_brokers_that_are_shutting_down_get_no_replicas() -> None:
    image, _ = THREE.apply([BrokerRegistrationChangeRecord(broker_id=2, in_controlled_shutdown=1)], 9, 1)
    made, _, _ = create(NewTopic("t", 8, 2), image)
    assert {replica for state in made.partitions.values() for replica in state.replicas} == {1, 3}
    by_hand, _, _ = create(NewTopic("t", assignments=[(0, [2, 3])]), image)
    assert (by_hand.partitions[0].isr, by_hand.partitions[0].leader) == ((3,), 3)


@pytest.mark.parametrize("factor", [0, -2])
def test_an_impossible_replication_factor_is_refused(factor: int) -> None:
    assert refusal(create, NewTopic("t", 1, factor)) == (
        ErrorCode.INVALID_REPLICATION_FACTOR,
        "Replication factor must be larger than 0, or -1 to use the default value.",
    )


@pytest.mark.parametrize("count", [0, -2])
def test_an_impossible_partition_count_is_refused(count: int) -> None:
    assert refusal(create, NewTopic("t", count, 1)) == (
        ErrorCode.INVALID_PARTITIONS,
        "Number of partitions was set to an invalid non-positive value.",
    )


def test_more_replicas_than_brokers_are_refused() -> None:
    assert refusal(create, NewTopic("t", 1, 4)) == (
        ErrorCode.INVALID_REPLICATION_FACTOR,
        "Unable to replicate the partition 4 time(s): The target replication factor of 4 cannot be reached because "
        "only 3 broker(s) are registered.",
    )


def test_too_many_partitions_at_once_are_refused() -> None:
    create(NewTopic("t", 10_000, 1))
    assert refusal(create, NewTopic("t", 10_001, 1)) == (
        ErrorCode.POLICY_VIOLATION,
        "Excessively large number of partitions per request: 10001 is more than 10000.",
    )


@pytest.mark.parametrize(
    ("configs", "message"),
    [
        ({"no.such.key": "1"}, "Unknown topic config name: no.such.key"),
        ({"retention.ms": None}, "Null value not supported for topic configs: retention.ms"),
        ({"retention.ms": "soon"}, "Invalid value soon for configuration retention.ms: Not a number of type LONG"),
        (
            {"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "8"},
            "conflict topic config setting min.compaction.lag.ms (9) > max.compaction.lag.ms (8)",
        ),
    ],
)
def test_settings_that_cannot_be_are_refused(configs: dict[str, str | None], message: str) -> None:
    assert refusal(create, NewTopic("t", 1, 1, configs=configs)) == (ErrorCode.INVALID_CONFIG, message)


# ---- creating with assignments ----


def test_replicas_may_be_assigned_by_hand() -> None:
    made, _, records = create(NewTopic("t", assignments=[(1, [3, 1]), (0, [2, 3])]))
    assert [made.partitions[index].replicas for index in (0, 1)] == [(2, 3), (3, 1)]
    assert [made.partitions[index].leader for index in (0, 1)] == [2, 3]
    image, _ = THREE.apply(records, 9, 1)
    assert image.topics["t"] == made


def test_a_fenced_broker_may_be_assigned_but_does_not_lead() -> None:
    image, _ = THREE.apply([BrokerRegistrationChangeRecord(broker_id=2, fenced=1)], 9, 1)
    made, _, _ = create(NewTopic("t", assignments=[(0, [2, 3])]), image)
    state = made.partitions[0]
    assert (state.replicas, state.isr, state.leader) == ((2, 3), (3,), 3)
    assert refusal(create, NewTopic("t", assignments=[(0, [2])]), image) == (
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "All brokers specified in the manual partition assignment [2] are fenced or in controlled shutdown.",
    )


ASSIGNMENT = ErrorCode.INVALID_REPLICA_ASSIGNMENT


@pytest.mark.parametrize(
    ("wish", "code", "message"),
    [
        (
            NewTopic("t", replication_factor=1, assignments=[(0, [1])]),
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but replication factor was not set to -1.",
        ),
        (
            NewTopic("t", partition_count=1, assignments=[(0, [1])]),
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        ),
        (
            NewTopic("t", assignments=[(0, [1]), (0, [2])]),
            ASSIGNMENT,
            "Found multiple manual partition assignments for partition 0",
        ),
        (
            NewTopic("t", assignments=[(0, [1]), (2, [2])]),
            ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        ),
        (
            NewTopic("t", assignments=[(1, [1])]),
            ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        ),
        (
            NewTopic("t", assignments=[(0, [1]), (1, [2, 3])]),
            ASSIGNMENT,
            "The manual partition assignment includes partitions with different numbers of replicas.",
        ),
        (
            NewTopic("t", assignments=[(0, [])]),
            ASSIGNMENT,
            "The manual partition assignment includes an empty replica list.",
        ),
        (
            NewTopic("t", assignments=[(0, [1, 77])]),
            ASSIGNMENT,
            "The manual partition assignment includes broker 77, but no such broker is registered.",
        ),
        (
            NewTopic("t", assignments=[(0, [1, 2, 1])]),
            ASSIGNMENT,
            "The manual partition assignment includes the broker 1 more than once.",
        ),
        (
            NewTopic("t", assignments=[(n, [1]) for n in range(10_001)]),
            ErrorCode.POLICY_VIOLATION,
            "Excessively large number of partitions per request: 10001 is more than 10000.",
        ),
    ],
)
def test_assignments_that_cannot_be_are_refused(wish: NewTopic, code: ErrorCode, message: str) -> None:
    assert refusal(create, wish) == (code, message)


# ---- more partitions ----


def test_partitions_are_added_with_as_many_replicas_as_the_others_have() -> None:
    image = image_of(broker(1), broker(2), broker(3), topic("t", [1, 2], [2, 3]))
    records = add_partitions(image, "t", 5, None, start=0)
    after, _ = image.apply(records, 9, 1)
    partitions = after.topics["t"].partitions
    assert list(partitions) == [0, 1, 2, 3, 4]
    assert {len(state.replicas) for state in partitions.values()} == {2}
    assert [partitions[index] for index in (0, 1)] == [image.topics["t"].partitions[index] for index in (0, 1)]
    assert partitions[4].leader == partitions[4].replicas[0]


def test_partitions_may_be_added_by_hand() -> None:
    records = add_partitions(THREE, "taken", 4, [[3], [2]], start=0)
    image, _ = THREE.apply(records, 9, 1)
    assert [image.topics["taken"].partitions[index].replicas for index in (2, 3)] == [(3,), (2,)]


@pytest.mark.parametrize(
    ("name", "count", "assignments", "code", "message"),
    [
        ("missing", 5, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None),
        ("taken", 2, None, ErrorCode.INVALID_PARTITIONS, "Topic already has 2 partition(s)."),
        (
            "taken",
            1,
            None,
            ErrorCode.INVALID_PARTITIONS,
            "The topic taken currently has 2 partition(s); 1 would not be an increase.",
        ),
        (
            "taken",
            -1,
            None,
            ErrorCode.INVALID_PARTITIONS,
            "The topic taken currently has 2 partition(s); -1 would not be an increase.",
        ),
        (
            "taken",
            10_003,
            None,
            ErrorCode.POLICY_VIOLATION,
            "Excessively large number of partitions per request: 10001 is more than 10000.",
        ),
        (
            "taken",
            4,
            [[1]],
            ASSIGNMENT,
            "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
        ),
        ("taken", 3, [[]], ASSIGNMENT, "The manual partition assignment includes an empty replica list."),
        (
            "taken",
            3,
            [[9]],
            ASSIGNMENT,
            "The manual partition assignment includes broker 9, but no such broker is registered.",
        ),
        (
            "taken",
            3,
            [[1, 1]],
            ASSIGNMENT,
            "The manual partition assignment includes the broker 1 more than once.",
        ),
    ],
)
def test_partitions_that_cannot_be_added_are_refused(
    name: str, count: int, assignments: list[list[int]] | None, code: ErrorCode, message: str | None
) -> None:
    assert refusal(add_partitions, THREE, name, count, assignments, start=0) == (code, message)


def test_partitions_with_another_number_of_replicas_are_refused() -> None:
    """Kafka too: all partitions of a topic have the same replication factor."""
    code, _ = refusal(add_partitions, THREE, "taken", 3, [[1, 2]], start=0)
    assert code is ASSIGNMENT


# ---- deleting ----


def test_a_topic_is_deleted_by_name_or_by_id() -> None:
    for name, topic_id in (("taken", ZERO_UUID), (None, THREE.topics["taken"].topic_id)):
        deleted, records = delete_topic(THREE, name, topic_id)
        assert deleted is THREE.topics["taken"]
        assert records == [RemoveTopicRecord(topic_id=deleted.topic_id)]
        assert set(THREE.apply(records, 9, 1)[0].topics) == {"with.dot"}


def test_a_topic_that_is_not_there_cannot_be_deleted() -> None:
    assert refusal(delete_topic, THREE, "missing", ZERO_UUID) == (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "This server does not host this topic-partition.",
    )
    assert refusal(delete_topic, THREE, None, ID) == (
        ErrorCode.UNKNOWN_TOPIC_ID,
        "This server does not host this topic ID.",
    )


def test_a_partition_begins_with_its_first_replica_that_is_alive() -> None:
    image, _ = THREE.apply([BrokerRegistrationChangeRecord(broker_id=1, fenced=1)], 9, 1)
    state = topics._new_partition(image, [1, 2, 3])
    assert isinstance(state, PartitionState)
    assert (state.leader, state.isr) == (2, (2, 3))
