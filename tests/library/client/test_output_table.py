"""Output topics read as tables, on a real broker: nothing is shown before the end, and nothing that has vanished."""

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import OFFSET_END, TopicPartition
from confluent_kafka.admin import OffsetSpec

from tests.deadline import deadline, until
from tests.deleted_records import delete_records
from tests.library.relay.published import Published, declared, deployed, publish_all
from truelog.client import output_table
from truelog.client.errors import Unavailable
from truelog.client.output_table import OutputTable
from truelog.log import topics
from truelog.relay import view_feed
from truelog.storage.database import Connection
from truelog.support.errors import ServiceDown
from truelog.support.settings import PROJECT, KafkaUser, Settings
from truelog.tables import deploy

COMPACTED = {"min.cleanable.dirty.ratio": "0.01", "segment.ms": "100"}


@pytest.fixture
def view(platform: Settings, connection: Connection) -> Iterator[Published]:
    made = deployed(platform, connection)
    yield made
    deploy.deploy_table(connection, declared(made.compiled.name, publish=False))


def opened(view: Published) -> OutputTable:
    return OutputTable(view.topic, view.settings.kafka(KafkaUser.READER), deadline(30))


def require_equal(table: OutputTable, view: Published) -> None:
    assert {each["product"]: float(each["amount"]) for each in table.rows.values()} == {
        product: float(amount) for product, amount in view.amounts().items()
    }


def test_a_table_is_read_to_its_end_and_followed(view: Published) -> None:
    for _ in range(20):
        view.change_at_random()
    publish_all(view.settings)
    with opened(view) as table:
        require_equal(table, view)
        assert not table.follow()
        for _ in range(5):
            view.change_at_random()
            publish_all(view.settings)
            table.follow(deadline(10))
            require_equal(table, view)


def test_a_program_with_asyncio_follows_in_a_thread(view: Published) -> None:
    """As the page says, because there is no asynchronous form. Other tasks go on."""
    publish_all(view.settings)

    async def story(table: OutputTable) -> None:
        following = asyncio.create_task(asyncio.to_thread(table.follow, deadline(30)))
        await asyncio.to_thread(view.change, {"p1": "1"})
        await asyncio.to_thread(publish_all, view.settings)
        assert await following

    with opened(view) as table:
        asyncio.run(story(table))
        require_equal(table, view)


def test_nothing_is_shown_before_the_end(view: Published, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that a reader has read, but not up to the end, were never in the view together."""
    view.change({"p1": "1"})
    publish_all(view.settings)
    with opened(view) as table:
        view.change({"p1": "2", "p2": "2"})
        publish_all(view.settings)
        keep, kept = table._keep, list[int]()

        def counted(message: Any) -> bool:
            kept.append(len(table.rows))
            return keep(message)

        monkeypatch.setattr(table, "_keep", counted)
        assert table.follow(deadline(10))
        assert set(kept) == {1}
        require_equal(table, view)


def test_a_reader_that_was_away_for_too_long_begins_again(view: Published, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tombstone of a row is gone from the topic, so only a new beginning forgets the row."""
    view.change({"p1": "1", "p2": "1"})
    publish_all(view.settings)
    with opened(view) as table:
        assert len(table.rows) == 2
        table._read["ghost"] = {"product": "ghost", "amount": 1}
        assert not table.follow()
        now = output_table._now
        monkeypatch.setattr(output_table, "_now", lambda: (now()[0], now()[1] + 2 * 86_400))
        assert table.follow()
        require_equal(table, view)
        assert "ghost" not in table._read


@pytest.mark.parametrize("missing", [output_table._EARLIEST, output_table._LATEST], ids=["first", "end"])
@pytest.mark.parametrize("reason", ["created again", "away for too long"])
def test_a_beginning_without_an_answer_is_repeated(
    view: Published, monkeypatch: pytest.MonkeyPatch, reason: str, missing: OffsetSpec
) -> None:
    """The rows before it stay visible, and the reader does not go on with them."""
    view.change({"p1": "1", "p2": "1"})
    publish_all(view.settings)
    with opened(view) as table:
        table._read = {"ghost": {"product": "ghost", "amount": 1}}  # and neither p1 nor p2
        shown, offset = table.rows, table._offset
        if reason == "created again":
            table._id = "of another topic"
        else:
            now = output_table._now
            monkeypatch.setattr(output_table, "_now", lambda: (now()[0], now()[1] + 2 * 86_400))

        def unanswered(spec: OffsetSpec) -> int:
            if spec is missing:
                raise Unavailable("a test")
            return offset(spec)

        with monkeypatch.context() as silence:
            silence.setattr(table, "_offset", unanswered)
            with pytest.raises(Unavailable, match="a test"):
                table.follow()
        assert table.rows == shown
        assert table.follow()
        require_equal(table, view)
        assert "ghost" not in table._read
        assert not table.follow()


def test_a_compacted_topic_gives_the_table(view: Published, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka removes earlier records of a key while a reader follows."""
    monkeypatch.setattr(view_feed, "OUTPUT_CONFIG", view_feed.OUTPUT_CONFIG | COMPACTED)
    publish_all(view.settings)
    with opened(view) as follower:
        for _ in range(12):
            for _ in range(10):
                view.change(
                    {f"p{n}": str(view.chosen.randrange(99)) for n in range(20)}, f"p{view.chosen.randrange(20)}"
                )
            publish_all(view.settings)
            follower.follow()

        def require_compacted() -> None:
            view.change_at_random()
            publish_all(view.settings)
            follower.follow()
            numbers = view.read()[1]
            if len(numbers) >= view.number() // 2:
                raise ServiceDown(f"{len(numbers)} of {view.number()} records are left")

        until(require_compacted, 90, "compaction")
        require_equal(follower, view)
        with opened(view) as late:
            require_equal(late, view)


def test_a_topic_that_was_created_again_is_read_again(view: Published) -> None:
    view.change({"p1": "1", "p2": "1"})
    publish_all(view.settings)
    with opened(view) as table:
        table._id = "of another topic"
        view.change({}, "p1")
        publish_all(view.settings)
        assert table.follow(deadline(10))
        require_equal(table, view)


def test_a_reader_whose_next_record_was_deleted_begins_again(
    view: Published, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As after `kafka-delete-records`, or after an unclean change of the leader. It goes on from there."""
    config = view_feed.OUTPUT_CONFIG | {"cleanup.policy": "compact,delete"}  # Kafka deletes no records without `delete`
    monkeypatch.setattr(view_feed, "OUTPUT_CONFIG", config)
    view.change({"p1": "1", "p2": "1"})
    publish_all(view.settings)
    with opened(view) as table:
        partition = TopicPartition(view.topic, 0, OFFSET_END)
        table._consumer.pause([partition])  # it would fetch the next records before they are deleted
        view.change({"p1": "2", "p3": "3"}, "p2")
        publish_all(view.settings)
        admin = topics.client(view.settings, KafkaUser.ADMIN)
        delete_records(admin, partition)
        view.change({"p1": "4"})
        publish_all(view.settings)
        table._consumer.resume([partition])
        assert table.follow(deadline(10))
        assert [(each["product"], each["amount"]) for each in table.rows.values()] == [("p1", 4)]
        assert "begins again" in caplog.text
        view.change({"p5": "5"})
        publish_all(view.settings)
        assert table.follow(deadline(10))
        assert [each["product"] for each in table.rows.values()] == ["p1", "p5"]


def test_a_reader_without_an_answer_goes_on_with_new_clients(view: Published, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client may never connect again after a broker has restarted. Here, it delivers nothing."""
    view.change({"p1": "1", "p2": "1"})
    publish_all(view.settings)
    with opened(view) as table:
        dead, read = table._consumer, table._next
        view.change({"p3": "3"}, "p1")
        publish_all(view.settings)
        with monkeypatch.context() as silence:
            silence.setattr(table, "_seconds", 0.1)
            silence.setattr(table, "_keep", lambda _: False)
            with pytest.raises(Unavailable, match="no record within"):
                table.follow()
        assert table._next == read
        assert table.follow()
        assert table._consumer is not dead
        require_equal(table, view)
        assert not table.follow()


def test_a_topic_that_does_not_exist_is_named(platform: Settings) -> None:
    with pytest.raises(Unavailable, match=r"view\.nothing\.v1"):
        OutputTable("view.nothing.v1", platform.kafka(KafkaUser.READER), 1.0)


def test_the_example_of_the_page_runs(
    view: Published, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    view.change({"p1": "1", "p2": "2"})
    publish_all(view.settings)
    settings = view.settings
    text = (PROJECT / "docs" / "outputs.md").read_text().replace("view.cart.v3", view.topic)
    text = text.replace("127.0.0.1:19092", settings.kafka_bootstrap)
    monkeypatch.setenv("KAFKA_PASSWORD", settings.kafka(KafkaUser.READER)["sasl.password"])
    [example] = re.findall(r"```python\n(import os\n\nfrom truelog.client.*?)```", text, re.DOTALL)
    exec(example, {"__name__": "page"})
    assert capsys.readouterr().out == "2 rows\n"
