"""A day in a shop: subsystems run under traffic and are killed. At closing time, each view equals its rebuild.

A new subsystem adds a step here, not a scene of its own. A step finds the shop open and leaves it open, so each step
can also run alone. The steps run in their order in this file, and the last one compares.
"""

import json
import os
import re
import signal
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import runtime
from runtime import keeper
from tests.beds.world import World, known
from tests.chosen_views import copy_views
from tests.command import answer, process_answer
from tests.deadline import until
from tests.library.commands.command_client import (
    Answer,
    CommandClient,
    send_until_answered,
    start_collector,
    start_commands,
)
from tests.library.commands.log_contents import claims_of, require_claims
from tests.library.listener import Listener, listening
from tests.library.relay.read_topic import table
from tests.nightly_cases import nightly_except
from tests.scenes.batch import Batch
from tests.scenes.captured_shop import CapturedShop, capturing
from tests.scenes.collector_client import page_view, payment
from tests.scenes.restarts import pids, require_restarted
from tests.scenes.restocking import Restocking, application_client, read_with
from tests.scenes.shop import PACE, Shop
from tests.scenes.shop_conditions import (
    require_all_taken,
    require_bulk,
    require_decisions_in_log,
    require_lag_is_ok,
    require_notifier_reads,
    require_told_of,
    taken,
)
from truelog.archive.table import archived_positions
from truelog.client.errors import Behind
from truelog.log import topics
from truelog.services import registry
from truelog.support.errors import ServiceDown
from truelog.support.settings import PROJECT, KafkaUser
from truelog.views import catalogue

SERVICES = tuple(each.name for each in registry.SERVICES)
# Sketches, two Groups, a Join, stored searches and pattern rules. Some of the sums of `test_streams` expire.
VIEWS = {
    name: catalogue.load_view(name)
    for name in ("page_audience", "document", "home_timeline", "cart", "search_hits", "matches")
}
RULE = "payments_from_another_country"
# Commands on a cart, each with its status: accepted, or refused.
CART: tuple[tuple[str, int, dict[str, Any]], ...] = (
    ("check_out_cart", 409, {}),
    ("add_to_cart", 409, {"product": "lamp", "quantity": 0}),
    ("add_to_cart", 200, {"product": "lamp", "quantity": 1}),
    ("add_to_cart", 200, {"product": "chair", "quantity": 2}),
    ("change_quantity", 200, {"product": "lamp", "quantity": 3}),
    ("remove_from_cart", 200, {"product": "chair"}),
    ("remove_from_cart", 409, {"product": "chair"}),
    ("check_out_cart", 200, {}),
    ("check_out_cart", 409, {}),
)
BATCH_ONLY = "also_bought"  # which a stream leaves out
OF_CUSTOMERS = ("customers", "payments_enriched")  # from the time at which the table of customers is captured
CUSTOMERS = [(1, "Ann", "ann@shop.example", "Oslo", "12.50", True, None), (2, "Bob", None, "Rome", "0", False, None)]
READ = {topic for view in VIEWS.values() for topic in view.reads}


@pytest.fixture(scope="module")
def listener() -> Iterator[Listener]:
    with listening() as opened:
        yield opened


@pytest.fixture(scope="module")
def shop(world: World, listener: Listener, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """An open shop, whose first visitors were served."""
    folder = copy_views(tmp_path_factory.mktemp("views"), *VIEWS, BATCH_ONLY)
    channels = {"wall": {"kind": "webhook", "url": listener.url}}
    more = {"views_folder": str(folder), "api_wait_seconds": "60", "notification_channels": channels, **PACE}
    with known(world.settings, **more):
        runtime.up(world.settings, SERVICES, tethered=True)
        opened = Shop(world, VIEWS)
        opened.application("archive")
        opened.serve()
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def customers(shop: Shop) -> Iterator[CapturedShop]:
    """The shop's table of customers, which is captured from now on, and its views, which the stream finds."""
    with capturing(shop.world, CUSTOMERS) as settings:
        copy_views(settings.views_folder, *OF_CUSTOMERS)
        shop.views = {**shop.views, **{name: catalogue.load_view(name) for name in OF_CUSTOMERS}}
        yield CapturedShop(shop.world, settings, shop.catch_up())


def test_visitors_are_served_although_the_services_are_killed(shop: Shop) -> None:
    """Visitors send again what was not acknowledged, and each acknowledged event is in the log."""
    before = pids(shop.world.settings, *SERVICES)
    with shop.serving():
        for pid in before.values():
            os.kill(pid, signal.SIGKILL)
        until(lambda: require_restarted(shop.world.settings, before), 60, "the killed services")
    shop.serve()
    assert shop.lost() == {}


def test_the_archive_is_killed_before_it_commits(shop: Shop) -> None:
    """The successor appends each record once. The last step proves it, because it rebuilds from the archive."""
    shop.killed("archive", "archive.before_commit:2:kill")
    ends = topics.end_offsets(shop.world.settings, READ)
    shop.application("archive").wait(
        lambda: archived_positions(shop.world.settings, READ).covers(ends), 120, "the records in the archive"
    )


def test_a_bad_event_is_kept_with_its_reason(shop: Shop) -> None:
    """The good event beside it goes on."""
    response = shop.client.post([page_view(1), page_view(2, type="surprise")])
    assert (response.status, len(response.body["good"]), len(response.body["bad"])) == (207, 1, 1)
    [letter] = answer("dead-letters", "list", "--type", "surprise")["dead_letters"]
    assert (letter["field"], letter["reason"].partition(";")[0]) == ("type", "not an event type")


def test_commands_are_decided_although_their_services_are_killed(shop: Shop, listener: Listener) -> None:
    """The view `cart` has what the answers say. The last step compares it with its rebuild.

    A webhook is notified when the cart has many lamps, and when the rule is retired.
    """
    shop.catch_up()
    many = "cart_id = 'by-commands' AND quantity > 2"
    notified = answer("notifications", "add", "bulk", "--row", "cart", "--when", many, "--to", "wall")
    assert notified["in_log"], notified
    until(lambda: require_notifier_reads(shop, "cart"), 30, "the notifier's first look")
    settings, cart = shop.world.settings, {"cart_id": "by-commands", "visitor_id": "ann"}
    before = pids(settings, "collector", "commands")
    for number, (command, status, fields) in enumerate(CART):
        if number == len(CART) // 2:
            for pid in before.values():
                os.kill(pid, signal.SIGKILL)
        found = send_until_answered([CommandClient(settings)], command, f"shop-{number}", **cart, **fields)
        assert found.status in ({200, 202} if status == 200 else {status}), found
    until(lambda: require_restarted(settings, before), 60, "the killed services")
    until(lambda: require_decisions_in_log(len([status for _, status, _ in CART if status == 200])), 60, "the events")
    shop.catch_up()
    rows = shop.world.ask(
        "SELECT product, quantity, checked_out_at IS NULL FROM views.cart WHERE cart_id = 'by-commands'"
    )
    assert rows == [("lamp", 3, False)]
    until(lambda: require_bulk(listener, "opened"), 30, "the notification of the cart")
    assert answer("notifications", "retire", "bulk")["in_log"]
    until(lambda: require_bulk(listener, "opened", "ended"), 30, "the last notification of the cart")


@pytest.mark.parametrize("claimants", nightly_except(["24"], ["24", "1000"]))
def test_one_of_many_claims_a_username_although_processes_are_killed(shop: Shop, claimants: str) -> None:
    """A second collector dies between a decision and its answer, and the service dies while it publishes the decision.

    Only the winner is in the log, and the same requests get the same answers. After a release, another gets the name.
    """
    settings, username, count = shop.world.settings, f"name{claimants}", int(claimants)
    keeper.stop(settings, "commands")
    service = start_commands(settings, "relay.sent:1:kill")
    killed = start_collector(settings, "command.committed:1:kill", TRUELOG_COLLECTOR_COMMAND_SECONDS="1")
    collectors = [killed, CommandClient(settings)]

    def send(command: str, person: str, number: int) -> Answer:
        turns, key = collectors if number % 2 else collectors[::-1], f"{username}-{command}-{person}"
        return send_until_answered(turns, command, key, username=username, person_id=person)

    def claim(number: int) -> Answer:
        return send("claim_username", f"p{number}", number)

    with shop.serving(), ThreadPoolExecutor(min(count, 64)) as pool:
        running = pool.map(claim, range(count))
        service.wait_kill()
        keeper.start(settings, "commands")
        answers = list(running)
    killed.process.wait_kill()
    [winner] = [number for number, each in enumerate(answers) if each.status in (200, 202)]
    assert Counter(each.status for each in answers)[409] == count - 1
    until(lambda: require_claims(settings, username, 1), 60, "the claim in the log")
    assert claims_of(settings, username) == [("claimed", f"p{winner}")]
    assert [claim(number) for number in (0, 1, winner)] == [answers[number] for number in (0, 1, winner)]

    assert {send("release_username", f"p{winner}", 0).status, send("claim_username", "next", 0).status} <= {200, 202}
    until(lambda: require_claims(settings, username, 3), 60, "the release and the next claim in the log")
    assert claims_of(settings, username)[1:] == [("released", f"p{winner}"), ("claimed", "next")]


@pytest.mark.nightly
def test_customers_are_captured_although_connect_and_the_stream_are_killed(
    shop: Shop, customers: CapturedShop, batch: Batch
) -> None:
    """The view equals the table, and a payment has the city that its customer had then. Both equal their rebuilds."""
    shop.catch_up().die()
    with shop.serving():
        customers.copy_customers(range(1_000, 6_000))
    shop.killed("stream", "merge.committed:1:kill")
    customers.run("UPDATE customers SET city = 'Bergen' WHERE id = 1", "DELETE FROM customers WHERE id = 2")
    customers.stream = shop.catch_up()
    customers.require_equal(rows=5_001)
    paid = payment(1, "succeeded", "NO") | {"event_id": "paid-by-ann", "customer_id": "1"}
    assert shop.client.post(paid).status == 200
    customers.run("UPDATE customers SET city = 'Turin' WHERE id = 1")
    customers.require_equal()
    shop.catch_up()
    found = shop.world.ask("SELECT name, city FROM views.payments_enriched WHERE event_id = 'paid-by-ann'")
    assert found == [("Ann", "Bergen")]
    batch.require_equal_from_raw(OF_CUSTOMERS)


def test_a_search_and_a_rule_find_later_events_although_the_stream_is_killed(shop: Shop, listener: Listener) -> None:
    """The stream dies in the merge of a match, and the successor continues each view.

    The last step compares hits and matches. A webhook is notified of each of them, always with the same id, although
    the notifier is killed too.
    """
    shop.catch_up()
    for name, *about in (("likes", "--hit", "liked"), ("fraud", "--match", RULE)):
        assert answer("notifications", "add", name, *about, "--to", "wall")["in_log"]
    for view in ("search_hits", "matches"):
        until(lambda view=view: require_notifier_reads(shop, view), 30, "the notifier's first look")  # type: ignore[misc]
    assert answer("searches", "add", "liked", "(I like) NOT bike*", "--on", "tweet")["in_log"]
    assert answer("patterns", "add", str(PROJECT / "include" / "rules" / f"{RULE}.rule"))["in_log"]
    require_killed_in_the_merge_of_a_match(shop)
    before = pids(shop.world.settings, "notifier")
    os.kill(before["notifier"], signal.SIGKILL)
    shop.catch_up()
    hits = answer("searches", "show", "liked", "--hits", "1000")["hits"]
    assert hits
    assert all(each["snippet"].startswith("I like my") for each in hits)

    until(lambda: require_restarted(shop.world.settings, before), 60, "the killed notifier")
    until(lambda: require_all_taken(listener, {each["document"] for each in hits}), 30, "the notifications of all hits")
    ids = {(each["row"]["document"], each["id"]) for each in taken(listener, "likes")}
    assert len({document for document, _ in ids}) == len(ids)
    [match] = answer("patterns", "show", RULE, "--matches", "10")["matches"]
    assert (match["entity_id"], match["outcome"], len(match["events"])) == ("carl", "found", 6)
    until(lambda: require_told_of(listener, match["match_id"]), 30, "the notification of the match")
    assert len({each["id"] for each in taken(listener, "fraud")}) == 1


def require_killed_in_the_merge_of_a_match(shop: Shop) -> None:
    """A customer pays while no stream runs, so the match is in the first merge that has rows of the view."""
    shop.application("stream").die()
    paid = [payment(number, "failed", "DE") for number in range(5)] + [payment(5, "succeeded", "FR")]
    assert shop.client.post(paid).status == 200
    before = shop.world.positions("matches").only(["payment"])
    shop.killed("stream", "judged.matches:1:kill")
    assert shop.world.positions("matches").only(["payment"]) == before


@pytest.mark.nightly
def test_the_stream_is_killed_between_merges(shop: Shop) -> None:
    """Some views have the batch, and the successor continues each one. The last step compares them."""
    shop.catch_up().die()
    before = {view: shop.world.positions(view) for view in VIEWS}
    shop.killed("stream", "merge.committed:2:kill")
    assert {shop.world.positions(view) == before[view] for view in VIEWS} == {True, False}


def test_an_application_does_what_its_page_says(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The examples of the page, in their order, on the running platform. The stream merges what they wait for."""
    examples = [each for each in _examples(shop, monkeypatch, "applications") if not each.startswith("# ")]
    assert len(examples) == 7
    exec("\n".join(examples), {"__name__": "page"})
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "ann Hello"
    assert said[1].startswith("version 2 of home_timeline at {")
    assert said[2] == "1 tweets in the timeline of bob"
    assert said[3] == "the tweet is a dead letter: String should have at most 4096 characters"
    assert said[-3] == "['Hello']"
    assert said[-2].startswith("1 rows at number ")
    assert said[-1] == "1"


def test_a_write_is_read_although_the_stream_and_the_api_are_killed_in_between(shop: Shop) -> None:
    """The stream has not read it. A copy of it is read later, and not counted."""
    edit: dict[str, Any] = {"type": "document_edit", "event_id": "own-write", "document_id": "own-writes"}
    edit |= {"author_id": "ann", "position": 0, "removed": 0, "inserted": "once"}
    stream = shop.catch_up()
    with application_client(shop.world.settings) as client, ThreadPoolExecutor(1) as pool:
        os.kill(stream.process.pid, signal.SIGSTOP)
        written = client.send(edit)
        stream.die()
        with pytest.raises(Behind):
            client.rows("document", at_least=written.token, wait=0)
        before = pids(shop.world.settings, "api")
        os.kill(before["api"], signal.SIGKILL)
        reading = pool.submit(read_with, client, written, "document", key=["own-writes"])
        shop.application("stream")
        assert [row["text"] for row in reading.result()] == ["once"]
        copy = client.send(edit)
        [row] = read_with(client, copy, "document", key=["own-writes"])
        assert (row["text"], row["edits"]) == ("once", 1)


def test_a_job_continues_from_an_output_although_it_is_killed(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It orders each sold product once, as its page says. A job that sends other ids orders some twice."""
    [text] = [each for each in _examples(shop, monkeypatch, "applications") if each.startswith("# restocking.py")]
    restock = Restocking(shop, tmp_path / "restock.py", text)
    restock.sell("sold-1", "sold-2")
    shop.catch_up()
    for cart, point, *defects in (("restock", "read"), ("restock", "sent"), ("defective", "sent", "ids")):
        assert restock.started(cart, point, *defects).wait_death(60) == -signal.SIGKILL
    jobs = [restock.started("restock", "none"), restock.started("defective", "none", "ids")]
    restock.sell("sold-3")
    shop.catch_up()
    until(lambda: restock.require_all_ordered("restock"), 90, "the orders")
    until(lambda: restock.require_too_many_ordered("defective"), 90, "the orders of the defective job")
    for each in jobs:
        each.die()
    shop.catch_up()
    restock.require_all_ordered("restock")
    ids = restock.ids_sent("restock")
    assert len(ids) > len({*ids}), "no event was sent again"


def test_people_edit_a_document_as_its_page_says(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two people edit one revision, in two units. What the page says that it prints is what the platform answers."""
    examples = _examples(shop, monkeypatch, "documents")
    assert len(examples) == 5
    exec("\n".join(examples), {"__name__": "page"})
    first, *steps, shown, refused = capsys.readouterr().out.splitlines()
    assert first == "Hi \U0001f600 Bob 1"
    assert "\n".join(steps) in (PROJECT / "docs" / "documents.md").read_text()
    assert len(steps) == 3
    assert shown == "True Hi \U0001f600 dear all"
    assert refused == "its position or its end is within a surrogate pair"


def test_the_lag_of_every_reader_is_known(shop: Shop) -> None:
    shop.serve()
    shop.catch_up()
    until(lambda: require_lag_is_ok({*VIEWS, "archive"}), 90, "a good verdict about each reader")


def test_the_output_topic_of_a_timeline_has_its_rows(shop: Shop) -> None:
    """The relay was killed with the other services. A reader who begins with nothing arrives at the table."""
    shop.serve()
    shop.catch_up()
    query = "SELECT row_to_json(t)::text FROM views.home_timeline AS t"

    def require_published() -> None:
        rows = {json.dumps(json.loads(row)) for (row,) in shop.world.ask(query)}
        read = {json.dumps(json.loads(row)) for row in table(shop.world.settings, "view.home_timeline.v2").values()}
        if not rows or rows != read:
            raise ServiceDown(f"the table has {len(rows)} rows, and the topic {len(read)}")

    until(require_published, 60, "the rows of the output topic")


def test_at_closing_time_every_view_equals_its_rebuild(shop: Shop, batch: Batch) -> None:
    """The rebuild reads raw bytes. One view is proved again from the bucket alone, without the database."""
    shop.serve()
    assert shop.catch_up().end() == 0
    shop.world.require_total("page_audience")
    batch.require_equal_from_raw(tuple(VIEWS))
    proved = process_answer("verify", "latest:document", TRUELOG_DATABASE_PORT="1", TRUELOG_DATABASE_PASSWORD="wrong")
    assert (proved["answer"], proved["rows"]) == ("EQUAL", shop.world.ask("SELECT count(*) FROM views.document")[0][0])


def _examples(shop: Shop, monkeypatch: pytest.MonkeyPatch, page: str) -> list[str]:
    """The examples of a page in Python, for the running platform."""
    shop.catch_up()
    settings = shop.world.settings
    monkeypatch.setenv("SHOP_WRITES", settings.producer_key.get_secret_value())
    monkeypatch.setenv("SHOP_READS", settings.reader_key.get_secret_value())
    text = (PROJECT / "docs" / f"{page}.md").read_text()
    monkeypatch.setenv("KAFKA_PASSWORD", settings.kafka(KafkaUser.READER)["sasl.password"])
    text = text.replace("127.0.0.1:19092", settings.kafka_bootstrap)
    for name, port in (("collector", 18080), ("api", 18083)):
        text = text.replace(f"127.0.0.1:{port}", f"127.0.0.1:{settings.address(name).port}")
    text = re.sub(r'(wait(?:=|": ))10', r"\g<1>60", text)  # on a busy machine
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)
