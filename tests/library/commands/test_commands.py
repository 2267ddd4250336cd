"""Commands on real services: collectors decide them, and the commands service publishes them.

`tests/scenes/test_day_in_a_shop.py` kills both while many claim one name.
"""

import json
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from tests.command import answer, truelog
from tests.deadline import until
from tests.deleted_records import delete_records
from tests.library.commands.command_client import (
    CART,
    Collector,
    new_name,
    ready,
    send_until_answered,
    start_collector,
    start_commands,
)
from tests.library.commands.decisions import REGISTER
from tests.library.commands.log_contents import claims_of
from tests.library.services.door import closed_door
from tests.scenes.applications import STARTED
from tests.scenes.collector_client import record
from tests.servers import copy_database, drop_database
from truelog.archive.commit import Append, commit
from truelog.archive.table import ensure_table, open_catalog
from truelog.archive.writer import FileWriter, WriterSettings, blueprint, load_archived_file
from truelog.commands.claims import CLAIM
from truelog.commands.folding import fold_positions
from truelog.control import command_states, event_registry
from truelog.log import range_reader, topics
from truelog.log.kafka_producer import KafkaSender, OutgoingRecord
from truelog.log.positions import Positions
from truelog.storage import kept_sessions
from truelog.storage.database import connect
from truelog.support.errors import ServiceDown
from truelog.support.settings import PROJECT, KafkaUser, Settings


@pytest.fixture(autouse=True)
def ended() -> Iterator[None]:
    """No process of a test survives it."""
    before = list(STARTED)
    yield
    for each in STARTED:
        if each not in before:
            each.die()


@pytest.fixture
def collector(platform: Settings) -> Collector:
    start_commands(platform)
    return ready(start_collector(platform))


def test_an_answer_and_what_is_in_the_log(collector: Collector) -> None:
    """The routes and the command line, one after another, because each process takes seconds to start."""
    cart: dict[str, Any] = {"cart_id": new_name(), **CART}
    added = collector.send("add_to_cart", "first", **cart, quantity=2)
    assert (added.status, added.json["acknowledged"], added.json["version"]) == (200, "log", 1), added
    [event] = added.json["events"]
    key, value = record(collector.settings, event)
    found = json.loads(value or b"")
    assert (key, found["event_id"]) == (cart["cart_id"].encode(), event["event_id"])
    assert (found["verb"], found["product"], found["quantity"]) == ("added", "lamp", 2)

    assert collector.send("add_to_cart", "first", **cart, quantity=2) == added
    assert collector.send("add_to_cart", "first", **cart, quantity=3).status == 422
    refused = collector.send("remove_from_cart", "second", **cart | {"product": "chair"})
    assert (refused.status, refused.json["refused"], refused.json["version"]) == (409, "chair is not in the cart", 1)
    assert collector.send("remove_from_cart", "second", **cart | {"product": "chair"}) == refused
    conflict = collector.send("remove_from_cart", **cart, expected_version=7)
    assert (conflict.status, conflict.json["version"]) == (412, 1)
    invalid = collector.send("add_to_cart", **cart)
    assert (invalid.status, invalid.json["field"]) == (422, "quantity")
    assert collector.send("surprise").status == 404
    forbidden = collector.send("retire_rule", rule="fraud", begins="{}")
    why = "the role producer may not do this; use a key with the role editor"
    assert (forbidden.status, forbidden.json) == (403, {"error": why})

    receipt = collector.request("GET", f"/commands/receipts/{added.json['receipt']}")
    assert (receipt.status, receipt.json["in_log"], receipt.json["version"]) == (200, True, 1)
    assert collector.request("GET", f"/commands/receipts/{uuid.uuid4()}").status == 404
    logged = answer("commands", "log", "--key", cart["cart_id"])["decisions"]
    assert [(each["command"], each["status"]) for each in logged] == [
        ("remove_from_cart", 412),
        ("remove_from_cart", 409),
        ("add_to_cart", 200),
    ]
    assert "chair is not in the cart" in truelog("commands", "log", "--key", cart["cart_id"]).stdout


@pytest.mark.nightly
def test_two_claims_of_one_command_are_granted_together_or_not_at_all(platform: Settings, tmp_path: Path) -> None:
    (tmp_path / "register.py").write_text(REGISTER)
    start_commands(platform)
    made = start_collector(platform, folder=str(tmp_path))
    first, second, third, ann = (new_name() for _ in range(4))
    granted = send_until_answered([made], "register", new_name(), cart_id=ann, names=f"{first} {second}")
    assert (granted.status, [each["topic"] for each in granted.json["events"]]) == (200, ["cart_event", CLAIM, CLAIM])
    refused = made.send("register", cart_id=new_name(), names=f"{third} {second}")
    assert (refused.status, refused.json["refused"]) == (409, f"username:{second}: taken")
    assert [claims_of(platform, name) for name in (first, second, third)] == [[("claimed", ann)]] * 2 + [[]]
    assert made.send("register", cart_id=new_name(), names=third).status == 200


def test_a_receipt_stays_a_receipt(platform: Settings) -> None:
    """While nothing is published, an accepted command gets a receipt, and then always the same answer.

    Two events may wait for the log. While they do, the collector refuses all commands, and its session stays.
    """
    service = start_commands(platform)
    few = {"TRUELOG_COLLECTOR_COMMAND_SECONDS": "0.2", "TRUELOG_COMMAND_WAITING_EVENTS": "2"}
    made = ready(start_collector(platform, **few))
    service.die()
    cart: dict[str, Any] = {"cart_id": new_name(), **CART}
    first = made.send("add_to_cart", "k", **cart, quantity=1)
    assert (first.status, first.json["acknowledged"], first.json["version"]) == (202, "receipt", 1)
    assert made.send("remove_from_cart", **cart).json["version"] == 2  # the decision has seen the first one
    until(lambda: require_no_room(made, cart), 30, "a refusal, because two events wait")
    start_commands(platform)

    def require_published() -> None:
        found = made.request("GET", f"/commands/receipts/{first.json['receipt']}")
        if not found.json["in_log"]:
            raise ServiceDown("not in the log yet")

    until(require_published, 60, "the publication")
    again = send_until_answered([made], "add_to_cart", "after", **cart, quantity=1)
    assert (again.status in (200, 202), again.json["version"]) == (True, 3)
    assert made.send("add_to_cart", "k", **cart, quantity=1) == first


def test_while_postgresql_does_not_answer_no_command_is_decided(platform: Settings) -> None:
    start_commands(platform)
    key = new_name()
    cart: dict[str, Any] = {"cart_id": new_name(), "quantity": 1, **CART}
    with closed_door(platform) as door:
        door.is_open = True
        behind = {"TRUELOG_DATABASE_HOST": "127.0.0.1", "TRUELOG_DATABASE_PORT": str(door.port)}
        made = ready(start_collector(platform, **behind))
        door.close()
        for _ in range(3):
            found = made.send("add_to_cart", key, **cart)
            assert (found.status, int(found.retry_after or 0) > 0) == (503, True), found
        door.is_open = True
        assert send_until_answered([made], "add_to_cart", key, **cart).json["version"] == 1


def require_no_room(collector: Collector, cart: dict[str, Any]) -> None:
    """A refused command, which adds no event, is answered until the collector looks again how many events wait."""
    found = collector.send("remove_from_cart", **cart)
    if found.status != 503:
        raise ServiceDown(f"{found}")
    assert "2 events of accepted commands wait for the log" in found.json["error"]
    assert int(found.retry_after or 0) > 0


def test_the_examples_of_the_page_run(collector: Collector) -> None:
    """`docs/commands.md` shows requests with their answers, and a command's file."""
    page = (PROJECT / "docs" / "commands.md").read_text()
    examples = re.findall(r"```http\nPOST /commands/(\w+)\n(?:Idempotency-Key: (.*)\n)?(.*)\n\n(\d+)\n(.*)\n```", page)
    assert len(examples) == page.count("```http")
    for command, key, body, status, shown in examples:
        found = collector.request("POST", f"/commands/{command}", body.encode(), key or None)
        assert (found.status, _as_shown(json.loads(shown), found.json)) == (int(status), json.loads(shown))
    [file] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert file == (PROJECT / "include" / "commands" / "release_username.py").read_text()


def _as_shown(shown: Any, found: Any) -> Any:
    """The answer as the page shows it, with … for what is new in each answer."""
    if isinstance(shown, dict):
        assert shown.keys() == found.keys()
        return {name: _as_shown(each, found[name]) for name, each in shown.items()}
    if isinstance(shown, list):
        return [_as_shown(*each) for each in zip(shown, found, strict=True)]
    return shown if shown == "…" else found


def test_events_that_bypass_commands_count(collector: Collector) -> None:
    cart: dict[str, Any] = {"cart_id": new_name(), **CART}
    bypass(collector.settings, cart)

    def require_removed() -> None:
        if collector.send("remove_from_cart", **cart).status != 200:
            raise ServiceDown("the reader has not read the event yet")

    until(require_removed, 60, "the event in the state")


def bypass(settings: Settings, cart: dict[str, Any]) -> None:
    event = {"event_id": new_name(), "occurred_at": "2026-11-25T10:00:00Z", **cart, "verb": "added", "quantity": 1}
    with KafkaSender(settings, ["cart_event"]) as sender:
        sender.send(OutgoingRecord("cart_event", cart["cart_id"], json.dumps(event).encode()))


def test_what_kafka_has_dropped_comes_from_the_archive(platform: Settings) -> None:
    cart: dict[str, Any] = {"cart_id": new_name(), **CART}
    bypass(platform, cart)
    archive_and_drop(platform, "cart_event")
    start_commands(platform)
    assert ready(start_collector(platform)).send("remove_from_cart", **cart).status == 200


def test_a_fold_that_begins_again_is_read_without_new_records(platform: Settings) -> None:
    """An erasure begins it again, while the reader runs and nothing happens in the topic."""
    cart: dict[str, Any] = {"cart_id": new_name(), **CART}
    bypass(platform, cart)
    start_commands(platform)
    made = ready(start_collector(platform))
    assert made.send("add_to_cart", **cart, quantity=1).status == 200
    with connect(platform, autocommit=True) as connection:
        before = fold_positions.statuses(connection)["cart_event"].generation
        command_states.withdraw(connection, ["cart_event"])

        def read() -> None:
            found = fold_positions.statuses(connection).get("cart_event")
            if found is None or found.generation == before:
                raise ServiceDown("the fold has not begun again")

        until(read, 60, "a fold that begins again")

    def decide() -> None:
        if (found := made.send("remove_from_cart", **cart)).status != 200:
            raise ServiceDown(f"{found}")

    until(decide, 60, "a decision on the states")


def archive_and_drop(settings: Settings, topic: str) -> None:
    """Archive all records of a topic, as the archive application does, and drop them from Kafka."""
    types, ends = event_registry.event_types(settings), topics.end_offsets(settings, [topic])
    begin, files, records = dict.fromkeys(ends.offsets[topic], 0), [], dict[int, int]()
    with open_catalog(settings) as catalog:
        metadata = ensure_table(catalog, types[topic], ends.ids[topic], begin).metadata
        tables = {topic: blueprint(metadata)}
        writer = FileWriter(WriterSettings.of(settings), types, tables, {})
        for each in Positions().ranges_to(ends):
            batches = list(range_reader.read(settings.kafka(KafkaUser.READER), [each], range_reader.WHOLE))
            records[each.partition] = sum(batch.num_rows for batch in batches)
            files += [load_archived_file(file["file"][0].as_py(), tables) for file in writer(batches)]
        made = tuple(file.data_file for file in files)
        commit(catalog, Append(topic, ends.ids[topic], begin, dict(ends.offsets[topic]), records, made))
    dropped = [TopicPartition(topic, partition, end) for partition, end in ends.offsets[topic].items()]
    delete_records(topics.client(settings, KafkaUser.ADMIN), *dropped)


def test_a_database_from_a_backup_knows_every_published_claim(platform: Settings) -> None:
    """The claims since the backup are in the log only. What was accepted and not published is lost, and no claim."""
    kept, lost, late = new_name(), new_name(), new_name()
    service, made = start_commands(platform), ready(start_collector(platform))
    assert made.send("claim_username", username=kept, person_id="ann").status == 200
    service.die()
    made.process.die()
    backup = f"{platform.database_name}_backup"
    kept_sessions.close_idle()  # a database that is copied must have no sessions
    copy_database(platform, platform.database_name, backup)
    short = {"TRUELOG_COLLECTOR_COMMAND_SECONDS": "0.2"}
    service, made = start_commands(platform), ready(start_collector(platform, **short))
    until(lambda: require_status(made, 200, lost, "ann"), 60, "a claim in the log")
    service.die()
    assert made.send("claim_username", username=late, person_id="ann").status == 202
    made.process.die()
    drop_database(platform, platform.database_name)
    copy_database(platform, backup, platform.database_name)
    drop_database(platform, backup)

    start_commands(platform)
    made = ready(start_collector(platform))
    for name in (kept, lost):
        assert made.send("claim_username", username=name, person_id="bob").status == 409
    assert made.send("claim_username", username=late, person_id="bob").status == 200
    assert [claims_of(platform, name) for name in (kept, late)] == [[("claimed", "ann")], [("claimed", "bob")]]
    *before, last = claims_of(platform, lost)  # a slow answer made the test release the name, and claim it again
    assert last == ("claimed", "ann")
    assert before == [("claimed", "ann"), ("released", "ann")] * (len(before) // 2)


def require_status(collector: Collector, status: int, username: str, person: str) -> None:
    """Claim and release until the answer has the status: an answer may come before the publication."""
    found = collector.send("claim_username", username=username, person_id=person)
    if found.status != status:
        collector.send("release_username", username=username, person_id=person)
        raise ServiceDown(f"{found}")
