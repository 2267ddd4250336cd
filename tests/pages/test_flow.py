"""Tests of the flow report on a filled database, without Airflow."""

from dataclasses import asdict
from datetime import timedelta

import pytest

from tests.builders.log import an_audit
from tests.builders.outputs import forget_relay, the_relay_looked
from tests.pages.plausible import HOSTILE
from truelog.reports import flow
from truelog.storage.database import connect
from truelog.support.settings import Settings


def test_each_node_has_its_state(filled: Settings) -> None:
    found = flow.flow_report(filled)
    assert found.applications == {"archive": "RUNNING", "stream": "RUNNING"}
    assert found.archive.state == "RUNNING"
    assert {each.reader: each.state for each in found.views}["page_audience"] == "STALLED"
    [output] = found.outputs
    assert (output.topic, output.rows_per_second, output.freshness) == ("view.page_views.v1", 1 / 300, 0)
    assert {each.reader: (each.views, each.answers) for each in found.consumers} == {
        "shop": (["page_views"], 1_204),
        HOSTILE[0]: (["page_views"], 3),
    }


@pytest.mark.usefixtures("archive_down")
def test_a_stopped_archive_is_no_longer_running(filled: Settings) -> None:
    assert flow.flow_report(filled).archive.state == "DOWN"


@pytest.mark.usefixtures("unread")
def test_a_suspended_topic_gives_the_reason(filled: Settings) -> None:
    topics = {each.topic: each.suspended for each in flow.flow_report(filled).topics}
    assert topics == {"click": f"click was deleted. {HOSTILE[0]}", "page_view": ""}


def test_topics_and_the_archive_have_the_verdict_of_their_last_check(filled: Settings) -> None:
    before = flow.flow_report(filled)
    assert {each.topic: each.quality for each in before.topics} == {"page_view": "FAILED"}  # a day has too few events
    assert before.archive.proof == "PASSED"
    with connect(filled, autocommit=True) as connection:
        an_audit(connection, ["a hole"])
        corrupt = flow.flow_report(filled).archive
        an_audit(connection)
    assert corrupt.proof == "FAILED"


def test_a_relay_that_no_longer_looks_is_down(filled: Settings) -> None:
    with connect(filled, autocommit=True) as connection:
        the_relay_looked(connection, timedelta(minutes=5))
        late = flow.flow_report(filled).relay
        forget_relay(connection)
        never = flow.flow_report(filled).relay
        the_relay_looked(connection, timedelta(days=-1))
    assert asdict(late) == {"service": "relay", "state": "DOWN", "reason": "it last looked 5 min ago"}
    assert asdict(never) == {"service": "relay", "state": "DOWN", "reason": "it has never looked for rows"}
    assert flow.flow_report(filled).relay.state == "RUNNING"
    assert flow.flow_report(filled).notifier.state == "UNUSED"
