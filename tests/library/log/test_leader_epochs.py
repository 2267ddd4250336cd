"""What a broker's first answer to a reader says about a cut, and which changes of leaders matter. Without Kafka."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, Message

from truelog.log import leader_epochs
from truelog.log.leader_epochs import Cut
from truelog.log.positions import Positions
from truelog.log.topics import PartitionKey
from truelog.support.errors import LeaderChanged, LogCut, ServiceDown
from truelog.support.settings import Settings

CLICK, VIEW = ("click", 0), ("page_view", 1)


def message(key: PartitionKey, offset: int, **more: Any) -> Message:
    """A message as a consumer gets it. The client's own cannot be made."""
    known = {"topic": key[0], "partition": key[1], "offset": offset, "error": None, "leader_epoch": None, **more}
    return SimpleNamespace(**{name: partial(lambda value: value, value) for name, value in known.items()})


def answer(code: int, text: str) -> Message:
    return message(CLICK, 7, error=KafkaError(code, text))


AT_5 = "Partition truncation detected: broker end offset is 5 (offset leader epoch 1)"


@pytest.mark.parametrize(
    ("message", "end"),
    [
        (message(CLICK, 7, value=b"a record"), None),
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


@pytest.mark.parametrize(
    ("reads", "cure"),
    [
        ({}, r"Run `truelog archive accept-cut`\.$"),
        (
            {"namespace": "blue", "reads_namespace": "red", "reads_bucket": "red"},
            r"Run `truelog archive accept-cut` in the environment red\. Then .* a new database and a new bucket",
        ),
    ],
)
def test_the_error_names_the_cure_that_works_here(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, reads: dict[str, str], cure: str
) -> None:
    """An environment that reads the events of another one cannot accept a cut."""
    cut = Cut("click", "an-id", 0, epoch=1, position=7, end=5)
    monkeypatch.setattr(leader_epochs, "find_cuts", lambda *_: iter([cut]))
    at = Positions({"click": {0: 7}}, {"click": "an-id"})
    with pytest.raises(
        LogCut, match=rf"^click 0: Kafka has lost the records \[5, 7\).*from this partition\. {cure}"
    ) as cut_log:
        leader_epochs.require_intact(settings.model_copy(update=reads), at, {CLICK: 1}, {CLICK: 2})
    assert cut_log.value.cuts == [cut]


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


IDS = {"click": "an-id", "page_view": "another-id"}
AT = Positions({"click": {0: 12}, "page_view": {1: 4}}, IDS)
CUT = Cut("click", "an-id", 0, epoch=3, position=12, end=5)


def test_the_cuts_of_changed_partitions_are_raised(postgresql: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[tuple[object, ...]]()

    def find(*given: object) -> list[Cut]:
        asked.append(given)
        return [CUT]

    monkeypatch.setattr(leader_epochs, "find_cuts", find)
    with pytest.raises(LogCut, match="Kafka has lost the records") as raised:
        leader_epochs.require_intact(postgresql, AT, {CLICK: 3, VIEW: 1}, {CLICK: 4, VIEW: 1})
    assert raised.value.cuts == [CUT]
    assert asked == [(postgresql, AT, {CLICK: 3})]
    monkeypatch.setattr(leader_epochs, "find_cuts", lambda *_: [])
    leader_epochs.require_intact(postgresql, AT, {CLICK: 3}, {CLICK: 4})


def record(key: PartitionKey, offset: int, epoch: int = 3) -> Message:
    return message(key, offset, leader_epoch=epoch)


def end(key: PartitionKey, offset: int) -> Message:
    eof = KafkaError(KafkaError._PARTITION_EOF, "the end")
    return message(key, offset, error=eof)


@dataclass
class Answers:
    """What Kafka answers, one after the other. Whoever asks further, fails."""

    left: list[Message]

    def poll(self, _: object) -> tuple[PartitionKey, Message]:
        message = self.left.pop(0)
        return (str(message.topic()), int(str(message.partition()))), message


@pytest.fixture
def answer_with(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Answers]:
    def answers(*messages: Message) -> Answers:
        made = Answers(list(messages))
        monkeypatch.setattr(leader_epochs, "_poll", made.poll)
        return made

    return answers


def test_the_first_answer_about_each_partition_counts(
    postgresql: Settings, answer_with: Callable[..., Answers], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A partition that was not cut is examined further."""
    intact = list[Mapping[PartitionKey, int]]()
    monkeypatch.setattr(leader_epochs, "_require_no_newer_epoch", lambda _, __, reached: intact.append(reached))
    again = answer(KafkaError._LOG_TRUNCATION, AT_5.replace("5", "6", 1))
    answers = answer_with(answer(KafkaError._LOG_TRUNCATION, AT_5), again, record(CLICK, 5, 4), record(VIEW, 4))
    assert list(leader_epochs.find_cuts(postgresql, AT, {CLICK: 3, VIEW: 3})) == [CUT]
    assert (answers.left, intact) == ([], [{VIEW: 3}])


NEWER = (
    "the record at {}, before the position {}, has the leader epoch {}, but the position was reached in the epoch {}"
)


@dataclass(frozen=True)
class Below:
    """Records below two positions, and why they contradict the epochs of these, if they do."""

    answers: list[Message]
    problem: str = ""
    click: int = 12  # its position
    begins: int = 10  # where the reading below it begins
    reached: int = 3  # the epoch of both positions


VIEWS = [record(VIEW, 3)]
BELOW = {
    "all are of the epoch": Below([record(CLICK, 10), *VIEWS, record(CLICK, 11)]),
    "the last ones are markers of transactions": Below([record(CLICK, 10), end(CLICK, 12), *VIEWS]),
    "the next one is newer": Below([record(CLICK, 10), record(CLICK, 12, 4), *VIEWS]),
    "later ones arrive while another partition is read": Below([record(CLICK, 11), record(CLICK, 13, 4), *VIEWS]),
    "there is none": Below(VIEWS, begins=12),
    "a newer one": Below([record(CLICK, 10), record(CLICK, 11, 4)], NEWER.format(11, 12, 4, 3)),
    "the epochs begin at 0": Below([record(VIEW, 3, 0), record(CLICK, 0, 0)], click=1, begins=0, reached=0),
    "the first one is newer": Below([record(CLICK, 0, 4)], NEWER.format(0, 1, 4, 3), click=1, begins=0),
    "Kafka fails": Below([answer(KafkaError._ALL_BROKERS_DOWN, "away")], "did not show its records .* away"),
}


@pytest.mark.parametrize("case", BELOW.values(), ids=BELOW)
def test_no_record_below_a_position_is_of_a_later_epoch(
    postgresql: Settings, answer_with: Callable[..., Answers], monkeypatch: pytest.MonkeyPatch, case: Below
) -> None:
    at = Positions({"click": {0: case.click}, "page_view": {1: 4}}, IDS)
    monkeypatch.setattr(leader_epochs, "_first_below", lambda _, key, __: case.begins if key == CLICK else 3)
    answers = answer_with(*case.answers)
    reached = {CLICK: case.reached, VIEW: case.reached}
    if case.problem:
        with pytest.raises(ServiceDown, match=case.problem):
            leader_epochs._require_no_newer_epoch(postgresql, at, reached)
    else:
        leader_epochs._require_no_newer_epoch(postgresql, at, reached)
    assert answers.left == []


class Asked:
    """A client that knows the bounds of a partition, or that gets this message."""

    def __init__(self, bounds: tuple[int, int] | None = None, message: Message | None = None) -> None:
        self.bounds, self.message = bounds, message

    def get_watermark_offsets(self, *_: object) -> tuple[int, int]:
        if self.bounds is None:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT, "away"))
        return self.bounds

    def poll(self, _: float) -> Message | None:
        return self.message


def asked(*given: Any) -> Any:
    return cast(Any, Asked(*given))


@pytest.mark.parametrize(
    ("bounds", "position", "begin"),
    [
        ((0, 15), 12, 2),
        ((0, 12), 12, 2),
        ((0, 15), 5, 0),
        ((7, 15), 12, 7),
        ((13, 15), 12, 12),  # retention has dropped all records below the position
    ],
)
def test_some_records_below_a_position_are_read(bounds: tuple[int, int], position: int, begin: int) -> None:
    assert leader_epochs._first_below(asked(bounds), CLICK, position) == begin


def test_a_log_that_ends_below_the_position_proves_nothing_yet() -> None:
    with pytest.raises(ServiceDown, match="click 0: the log ends at 11, before the position 12"):
        leader_epochs._first_below(asked((0, 11)), CLICK, 12)
    with pytest.raises(ServiceDown, match="did not say where click 0 ends"):
        leader_epochs._first_below(asked(), CLICK, 12)


@pytest.mark.parametrize("partition", [0, 1])
def test_an_answer_belongs_to_its_partition(partition: int) -> None:
    message = record(("click", partition), 3)
    assert leader_epochs._poll(asked(None, message)) == (("click", partition), message)
    with pytest.raises(ServiceDown, match="did not say within 20 s"):
        leader_epochs._poll(asked())
