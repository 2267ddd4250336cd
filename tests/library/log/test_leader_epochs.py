"""What a broker's first answer to a reader says about a cut, and which changes of leaders matter. Without Kafka."""

import pytest
from confluent_kafka import KafkaError, Message

from truelog.log import leader_epochs
from truelog.log.leader_epochs import Cut
from truelog.log.positions import Positions
from truelog.support.errors import LeaderChanged, ServiceDown
from truelog.support.settings import Settings

CLICK, VIEW = ("click", 0), ("page_view", 1)


def answer(code: int, text: str) -> Message:
    return Message(topic="click", partition=0, offset=7, error=KafkaError(code, text))


AT_5 = "Partition truncation detected: broker end offset is 5 (offset leader epoch 1)"


@pytest.mark.parametrize(
    ("message", "end"),
    [
        (Message(topic="click", partition=0, offset=7, value=b"a record"), None),
        (answer(KafkaError._PARTITION_EOF, "the end"), None),
        (answer(KafkaError._AUTO_OFFSET_RESET, "offset out of range"), None),  # retention has dropped the position
        (answer(KafkaError._LOG_TRUNCATION, AT_5), 5),
        (answer(KafkaError._AUTO_OFFSET_RESET, AT_5), 5),
        (answer(KafkaError._LOG_TRUNCATION, AT_5.replace("5", "12345", 1)), 12_345),
    ],
)
def test_where_the_epoch_of_a_reader_ends(message: Message, end: int | None) -> None:
    assert leader_epochs._end_of_cut(message) == end


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (answer(KafkaError._ALL_BROKERS_DOWN, "broker end offset is 5 after truncation"), "did not say whether"),
        (answer(KafkaError._LOG_TRUNCATION, "truncation"), "does not know where"),
        (answer(KafkaError._LOG_TRUNCATION, "the log is shorter"), "does not know where"),
        (answer(KafkaError._AUTO_OFFSET_RESET, "truncation"), "does not know where"),
    ],
)
def test_any_other_answer_proves_nothing(message: Message, reason: str) -> None:
    with pytest.raises(ServiceDown, match=reason):
        leader_epochs._end_of_cut(message)


def test_only_partitions_with_another_leader_repeat_a_batch() -> None:
    leader_epochs.require_same({CLICK: 1, VIEW: 4}, {CLICK: 1, VIEW: 4})
    leader_epochs.require_same({CLICK: 1}, {CLICK: 1, VIEW: 4})
    leader_epochs.require_same({CLICK: 1, VIEW: 4}, {CLICK: 1})  # Kafka said nothing about it
    with pytest.raises(LeaderChanged, match=r"^click 0, page_view 1: the leader changed"):
        leader_epochs.require_same({VIEW: 4, CLICK: 1}, {CLICK: 2, VIEW: 3})


def test_kafka_is_asked_only_about_changed_epochs(postgresql: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader_epochs, "_TIMEOUT_SECONDS", 0.2)
    away = postgresql.model_copy(update={"kafka_bootstrap": "127.0.0.1:1"})
    at = Positions({"click": {0: 3}}, {"click": "an-id"})
    leader_epochs.require_intact(away, at, {CLICK: 1}, {CLICK: 1})
    leader_epochs.require_intact(away, at, {CLICK: 1}, {})
    with pytest.raises(ServiceDown):
        leader_epochs.require_intact(away, at, {CLICK: 1}, {CLICK: 2})


def test_a_cut_names_the_lost_records() -> None:
    cut = Cut("click", "an-id", 0, epoch=1, position=9, end=5)
    assert str(cut).startswith("click 0: Kafka has lost the records [5, 9), which were read already")
