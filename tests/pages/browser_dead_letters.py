"""Tests of the dead letters page in Chromium."""

import json
import re

import pytest
from confluent_kafka import Producer
from playwright.sync_api import Page, expect

from tests.deadline import deadline
from tests.pages.browsing import PHONE, change_answer, is_wide_enough, open_page
from tests.pages.conftest import BAD
from tests.pages.hostile_bytes import archive_values, reject_all
from tests.pages.plausible import HOSTILE
from tests.pages.rejected_click import reject_click
from tests.pages.ways import DESK
from truelog.erasure.dead_letter import DEAD_LETTER
from truelog.log import kafka_reader, topics
from truelog.support.settings import KafkaUser, Settings


@pytest.fixture(scope="module")
def archived_letters(rejected: Settings) -> Settings:
    """The dead letters of partition 0, archived too. The first of them is that of three days ago."""
    letters = kafka_reader.messages(rejected, DEAD_LETTER, 0, 0, 1 + len(BAD))
    topic_id = topics.topic_ids(rejected, [DEAD_LETTER])[DEAD_LETTER]
    archive_values(rejected, DEAD_LETTER, topic_id, [each.value() or b"" for each in letters])
    return rejected


@pytest.mark.parametrize("watched", ["analyst"], indirect=True)
def test_dead_letters_are_counted_chosen_and_sorted(rejected: Settings, watched: Page) -> None:
    open_page(watched, "dead-letters?hours=24")
    reasons, letters = watched.locator("main table").all()
    expect(reasons.locator("tbody tr").first).to_contain_text("page_view")
    expect(letters.locator("tbody tr")).to_have_count(6)
    expect(letters).to_contain_text(HOSTILE[0])
    assert is_wide_enough(watched)
    expect(watched.get_by_label("Event type")).to_have_value("")
    letters.get_by_role("button", name="Type").click()
    expect(letters.get_by_role("columnheader", name="Type")).to_have_attribute("aria-sort", "ascending")
    reasons.get_by_role("button").first.click()
    expect(letters.locator("tbody tr")).to_have_count(3)
    expect(watched.locator("main")).to_contain_text("3 in all")
    expect(watched.get_by_role("button", name="Send 3 dead letters again")).to_be_disabled()
    expect(watched.locator("main")).to_contain_text("Requires permission to trigger the reconcile DAG.")
    expect(watched.locator("main")).not_to_contain_text("truelog dead-letters replay")
    watched.reload()
    expect(letters.locator("tbody tr")).to_have_count(3)
    expect(watched.get_by_label("Event type")).to_have_value("page_view")
    expect(letters.get_by_role("link").first).to_have_attribute("href", "record?topic=dead_letter&partition=0&offset=3")
    watched.get_by_label("Search").fill("no such reason")
    watched.get_by_label("Search").press("Enter")
    expect(watched.locator("main")).to_contain_text("No dead letters match.")
    assert watched.locator("main img").count() == 0


@pytest.mark.parametrize("watched", ["oncall"], indirect=True)
def test_what_would_be_sent_again_is_counted_before_it_is_sent(rejected: Settings, watched: Page) -> None:
    open_page(watched, "dead-letters?hours=24&type=page_view&skip=100")  # no longer so many
    expect(watched.locator("main")).to_contain_text("truelog dead-letters replay --since 24h --type page_view")
    expect(watched.locator("figure.chart")).to_contain_text("Dead letters in each 60 min")
    assert "skip" not in watched.url
    watched.get_by_role("button", name="Send 3 dead letters again").click()
    dialog = watched.locator("dialog")
    expect(dialog).to_contain_text("No event would be sent.")
    expect(dialog).to_contain_text("Still invalid:")
    dialog.get_by_role("button", name="Close").click()
    watched.get_by_role("button", name="Show all types and reasons").click()
    expect(watched.get_by_role("button", name="Send 6 dead letters again")).to_be_enabled()


@pytest.mark.parametrize("watched", ["oncall"], indirect=True)
def test_the_record_of_a_dead_letter_begins_with_the_rejected_event(archived_letters: Settings, watched: Page) -> None:
    open_page(watched, "record?list=dead_letter")
    main = watched.locator("main")
    listed = main.locator("tr[data-key='0:5']")
    expect(listed.locator(".badge")).to_have_text("Rejected")
    expect(listed).to_contain_text("type: ")
    expect(listed).to_contain_text(f'"type": {json.dumps(HOSTILE[0])}')  # as it was posted
    listed.get_by_role("link").click()
    expect(main.locator(".badge").first).to_have_text("Rejected")
    expect(main).to_contain_text(f"Meant for{HOSTILE[0]}")
    expect(main.locator("tbody tr", has_text="Rejected field")).to_contain_text("type")
    expect(main).to_contain_text("Still invalid")
    watched.get_by_role("button", name="Send it again").click()
    expect(watched.locator("dialog")).to_contain_text("No event would be sent.")
    alike = watched.get_by_role("link", name="Dead letters with this reason")
    expect(alike).to_have_attribute("href", re.compile("hours=24&"))
    expect(main).not_to_contain_text("The event has no field")
    change_answer(watched, re.compile(r"data/record\?"), lambda found: found["letter"].update(field="event_time"))
    watched.reload()
    expect(main).to_contain_text("event_time: ")
    expect(main).not_to_contain_text("The event has no field")  # a rule about several fields has this name
    open_page(watched, "record?topic=dead_letter&partition=0&offset=0")
    expect(alike).to_have_attribute("href", re.compile("hours=168&"))  # it was rejected three days ago


@pytest.mark.parametrize("watched", ["oncall"], indirect=True)
def test_an_event_that_is_valid_now_is_sent_after_a_confirmation(rejected: Settings, watched: Page) -> None:
    reject_click(rejected)
    open_page(watched, "dead-letters?hours=24&type=click")
    watched.get_by_role("button", name="Send 1 dead letter again").click()
    dialog = watched.locator("dialog")
    expect(dialog).to_contain_text("1 event is valid now and will be sent. Your name is recorded.")
    dialog.get_by_role("button", name="Send 1 event").click()
    expect(dialog.get_by_role("heading", name="Sent 1 event")).to_be_visible()


def test_a_type_stays_one_word_beside_a_long_reason(rejected: Settings, watched: Page) -> None:
    [letter] = reject_all([b'{"type": "document_edited", "event_id": "e"}'])
    producer = Producer(rejected.kafka(KafkaUser.COLLECTOR))
    producer.produce(DEAD_LETTER, letter, partition=1)
    assert producer.flush(deadline(30)) == 0
    open_page(watched, "dead-letters?hours=24&type=document_edited")
    words = watched.locator("main tbody td[data-head='Type'] .value")
    expect(words).to_have_text(["document_edited", "document_edited"])  # of the reasons, and of the letters
    for size in (DESK, PHONE):
        watched.set_viewport_size(size)
        assert words.evaluate_all("words => words.map((each) => each.getClientRects().length)") == [1, 1]
        assert is_wide_enough(watched)
