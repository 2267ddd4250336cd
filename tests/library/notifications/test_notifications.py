"""Notifications on a real database and real receivers: each incident once and in order."""

import json
from datetime import timedelta
from pathlib import Path

import pytest

from tests.builders.notifications import (
    make_rules_again,
    older_incidents,
    older_notifications,
    retire_rule,
    set_clock,
    set_rule,
)
from tests.builders.outputs import older
from tests.command import answer, truelog
from tests.deadline import until
from tests.library.listener import FAILS, HANGS, REFUSES, TAKES, Listener
from tests.library.notifications.found_rows import FoundRows, hit, match
from tests.library.notifications.rounds import SECRET, deliver, look, require_try
from tests.scenes.applications import start
from truelog.notifications import delivery, history, intake, notifier
from truelog.relay.view_feed import ViewFeed
from truelog.services.notifier import declaration, notifier_look, service
from truelog.storage.database import Connection
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
SEVEN_DAYS_LATER = "2026-03-08T03:00:01Z"  # a second more than the age of a usual hit


def texts(listener: Listener) -> list[str]:
    return [each["text"] for each in listener.taken]


def outcomes(connection: Connection) -> list[tuple[str, str, int]]:
    """The notifications from the first to the last."""
    found = reversed(history.deliveries(connection, None, 100))
    return [(each["says"], each["outcome"], each["tries"]) for each in found]


def test_hits_of_one_search_are_told_once_and_in_order(told: Settings, hits: FoundRows, listener: Listener) -> None:
    """Hits from before the rule, of another search, and rows that change again, cause none."""
    hits.change(hit("post:0:1"))
    set_rule(hits.connection, "outage", "hit", "outages")
    look(hits.connection)
    hits.change(hit("post:0:2"), hit("post:0:3", "others"))
    hits.change(hit("post:0:4"), removed=(hit("post:0:9"),))
    look(hits.connection)
    hits.change(hit("post:0:2") | {"snippet": "again"})
    deliver(told, hits.connection)
    assert texts(listener) == ["outages: Kafka is down: post:0:2", "outages: Kafka is down: post:0:4"]
    first = listener.taken[0]
    assert listener.headers[0]["Idempotency-Key"] == first["id"]
    assert listener.headers[0]["Authorization"] == f"Bearer {SECRET}"
    assert (first["says"], first["notification"], first["kind"], first["subject"]) == (
        "opened",
        "outage",
        "hit",
        "outages",
    )
    assert first["row"]["document"] == "post:0:2"
    assert listener.paths == ["/hook"] * 2


def test_rows_of_a_group_are_one_incident_for_its_time(told: Settings, hits: FoundRows, listener: Listener) -> None:
    set_rule(hits.connection, "outage", "hit", "outages", group_by="event_type", template="$$ $event_type")
    look(hits.connection)
    for number in range(3):
        hits.change(hit(f"post:0:{number}"))
    deliver(told, hits.connection)
    assert texts(listener) == ["$ post"]
    assert listener.taken[0]["group"] == {"event_type": "post"}
    older_incidents(hits.connection, HOUR)
    hits.change(hit("post:0:3"))
    deliver(told, hits.connection)
    assert texts(listener) == ["$ post"] * 2
    assert listener.taken[0]["incident"] != listener.taken[1]["incident"]


def test_a_retracted_match_says_so_and_an_undecided_one_waits(
    told: Settings, matches: FoundRows, listener: Listener
) -> None:
    set_rule(matches.connection, "fraud", "match", "fraud", template="$entity_id")
    set_clock(matches.connection, "matches", "2026-03-01T03:00:00Z")
    look(matches.connection)
    late = "2026-03-01T04:00:00Z"
    matches.change(match("a"), match("b", "bob", settled_after=late), match("c", "cid", settled_after=late))
    matches.change(match("d", outcome="too costly"))
    deliver(told, matches.connection)
    assert texts(listener) == ["ann"]
    matches.change(match("a", outcome="retracted"), match("b", "bob", outcome="retracted", settled_after=late))
    deliver(told, matches.connection)
    assert texts(listener) == ["ann", "Retracted: ann"]
    assert listener.taken[1]["incident"] == listener.taken[0]["incident"]
    assert listener.taken[1]["id"] != listener.taken[0]["id"]
    set_clock(matches.connection, "matches", "2026-03-01T04:00:01Z")
    deliver(told, matches.connection)
    assert texts(listener) == ["ann", "Retracted: ann", "cid"]
    matches.change(match("a", outcome="late"), removed=(match("c", "cid"),))
    deliver(told, matches.connection)
    assert sorted(texts(listener)[3:]) == ["Retracted: cid", "ann"]
    assert listener.taken[2]["row"]["shown"] == '{"amount": 12.50}'


def test_an_incident_is_retracted_with_its_last_row_and_an_expired_hit_is_not(
    told: Settings, hits: FoundRows, listener: Listener
) -> None:
    set_rule(hits.connection, "outage", "hit", "outages", group_by="event_type")
    set_clock(hits.connection, "search_hits", "2026-03-01T04:00:00Z")
    look(hits.connection)
    hits.change(hit("post:0:1"), hit("post:0:2"))
    hits.change(removed=(hit("post:0:1"),))
    deliver(told, hits.connection)
    assert len(listener.taken) == 1
    hits.change(removed=(hit("post:0:2"),))
    deliver(told, hits.connection)
    assert [each["says"] for each in listener.taken] == ["opened", "retracted"]
    hits.change(hit("post:0:3"))
    look(hits.connection)
    set_clock(hits.connection, "search_hits", SEVEN_DAYS_LATER)
    hits.change(removed=(hit("post:0:3"),))
    deliver(told, hits.connection)
    assert [each["says"] for each in listener.taken] == ["opened", "retracted", "opened"]


def test_a_match_that_leaves_with_its_span_is_not_retracted(
    told: Settings, matches: FoundRows, listener: Listener
) -> None:
    set_rule(matches.connection, "fraud", "match", "fraud")
    look(matches.connection)
    old, young = match("a"), match("b", "bob") | {"span_end": "2026-03-02T03:00:00+00:00"}
    matches.change(old, young)
    look(matches.connection)
    set_clock(matches.connection, "matches", "2027-04-05T03:00:01Z")  # 400 days and a second after the end of `old`
    matches.change(removed=(old, young))
    deliver(told, matches.connection)
    assert [each["says"] for each in listener.taken] == ["opened", "opened", "retracted"]
    assert listener.taken[2]["row"]["entity_id"] == "bob"


def test_a_hit_that_leaves_before_its_view_drops_it_is_retracted(
    told: Settings, hits: FoundRows, listener: Listener
) -> None:
    """The view says how old a hit may become."""
    old, young = hit("post:0:1"), hit("post:0:2", logged_at="2026-03-01T03:00:02+00:00")
    set_rule(hits.connection, "outage", "hit", "outages")
    look(hits.connection)
    hits.change(old, young)
    look(hits.connection)
    set_clock(hits.connection, "search_hits", SEVEN_DAYS_LATER)
    hits.change(removed=(old, young))
    deliver(told, hits.connection)
    assert [each["says"] for each in listener.taken] == ["opened", "opened", "retracted"]
    assert listener.taken[2]["row"]["document"] == "post:0:2"


def test_a_view_without_its_file_waits(
    told: Settings, hits: FoundRows, listener: Listener, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The notifier is not ready until it can load the view."""
    unmounted = told.model_copy(update={"views_folder": tmp_path})
    set_rule(hits.connection, "outage", "hit", "outages")
    notifier.look(unmounted, hits.connection)
    with pytest.raises(ServiceDown, match="never looked"):
        notifier_look.require_look(told)
    look(hits.connection)
    notifier_look.require_look(told)
    hits.change(hit("post:0:1"))
    older_look(hits.connection)
    assert notifier.look(unmounted, hits.connection) == 0
    assert "search_hits has no notifications: There is no view 'search_hits'" in caplog.text
    with pytest.raises(ServiceDown, match="last looked 60 s ago: its log says why"):
        notifier_look.require_look(told)
    deliver(told, hits.connection)
    notifier_look.require_look(told)
    assert texts(listener) == ["outages: Kafka is down: post:0:1"]


def older_look(connection: Connection) -> None:
    connection.execute("UPDATE truelog.notifier SET looked_at = looked_at - interval '1 minute'")


def test_a_match_that_a_later_portion_retracts_is_not_told(
    told: Settings, matches: FoundRows, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log's clock is that of the last change, which the notifier has not read yet."""
    monkeypatch.setattr(intake, "_PORTION", 1)
    set_rule(matches.connection, "fraud", "match", "fraud", template="$entity_id")
    look(matches.connection)
    late = "2026-03-01T04:00:00Z"
    matches.change(match("a", settled_after=late))
    matches.change(match("b", "bob", settled_after=late))
    matches.change(match("a", outcome="retracted", settled_after=late))
    set_clock(matches.connection, "matches", "2026-03-01T04:00:01Z")
    deliver(told, matches.connection)
    assert texts(listener) == ["bob"]


def test_a_rule_with_another_subject_retracts_nothing_and_tells_of_no_earlier_row(
    told: Settings, matches: FoundRows, listener: Listener
) -> None:
    set_rule(matches.connection, "mine", "match", "fraud", template="$entity_id")
    set_clock(matches.connection, "matches", "2026-03-01T03:00:00Z")
    look(matches.connection)
    undecided = match("b", "bob", settled_after="2026-03-01T04:00:00Z")
    matches.change(match("a"), undecided)
    deliver(told, matches.connection)
    change_rule(matches.connection, "mine", "match", "theft")
    set_clock(matches.connection, "matches", "2026-03-01T04:00:01Z")
    matches.change(match("a") | {"shown": "{}"})
    deliver(told, matches.connection)
    change_rule(matches.connection, "mine", "match", "fraud")
    deliver(told, matches.connection)
    assert texts(listener) == ["ann"]
    matches.change(match("a", outcome="retracted"))
    deliver(told, matches.connection)
    assert texts(listener) == ["ann", "Retracted: ann"]


def change_rule(connection: Connection, name: str, kind: str, subject: str) -> None:
    make_rules_again(connection)
    set_rule(connection, name, kind, subject)


def test_a_retired_rule_tells_of_no_later_row_and_what_waits_is_delivered(
    told: Settings, hits: FoundRows, listener: Listener
) -> None:
    set_rule(hits.connection, "outage", "hit", "outages")
    look(hits.connection)
    hits.change(hit("post:0:1"))
    look(hits.connection)
    retire_rule(hits.connection, "outage")
    hits.change(hit("post:0:2"))
    deliver(told, hits.connection)
    assert texts(listener) == ["outages: Kafka is down: post:0:1"]
    set_rule(hits.connection, "later", "hit", "outages")
    deliver(told, hits.connection)
    assert len(listener.taken) == 1


@pytest.mark.parametrize("meanwhile", ["retired", "about hits"])
def test_a_rule_that_is_added_again_tells_of_no_row_that_waited_before(
    told: Settings, matches: FoundRows, listener: Listener, meanwhile: str
) -> None:
    set_rule(matches.connection, "fraud", "match", "fraud", template="$entity_id")
    set_rule(matches.connection, "other", "match", "other")
    set_clock(matches.connection, "matches", "2026-03-01T03:00:00Z")
    look(matches.connection)
    matches.change(match("a", settled_after="2026-03-01T04:00:00Z"))
    look(matches.connection)
    if meanwhile == "retired":
        retire_rule(matches.connection, "fraud")
    else:
        set_rule(matches.connection, "fraud", "hit", "fraud")
    look(matches.connection)
    set_rule(matches.connection, "fraud", "match", "fraud", template="$entity_id")
    set_clock(matches.connection, "matches", "2026-03-01T04:00:01Z")
    matches.change(match("b", "bob", settled_after="2026-03-01T04:00:00Z"))
    deliver(told, matches.connection)
    assert texts(listener) == ["bob"]


def test_rules_that_are_read_again_from_the_log_are_not_taken_for_retired(
    told: Settings, hits: FoundRows, listener: Listener
) -> None:
    set_rule(hits.connection, "outage", "hit", "outages")
    look(hits.connection)
    make_rules_again(hits.connection)
    hits.change(hit("post:0:1"))
    deliver(told, hits.connection)
    assert listener.taken == []
    set_rule(hits.connection, "outage", "hit", "outages")
    deliver(told, hits.connection)
    assert texts(listener) == ["outages: Kafka is down: post:0:1"]


def test_a_receiver_that_fails_hangs_and_is_away_gets_each_notification_in_the_end(
    told: Settings, hits: FoundRows, listener: Listener
) -> None:
    set_rule(hits.connection, "outage", "hit", "outages")
    look(hits.connection)
    hits.change(hit("post:0:1"))
    look(hits.connection)
    for mood in (FAILS, HANGS):
        listener.mood = mood
        until(lambda: require_try(told, hits.connection), 20, "a try")
    listener.away()
    until(lambda: require_try(told, hits.connection), 20, "a try")
    hits.change(removed=(hit("post:0:1"),))
    look(hits.connection)
    [waiting, _] = history.deliveries(hits.connection, "outage", 10, waiting=True)[::-1]
    assert (waiting["tries"], waiting["outcome"]) == (3, "waiting")
    assert "did not answer" in waiting["failed"]
    assert listener.url not in waiting["failed"]
    listener.back()
    until(lambda: require_taken(told, hits.connection, listener, 2), 20, "both notifications")
    assert [each["says"] for each in listener.taken] == ["opened", "retracted"]
    assert listener.taken[0]["id"] == waiting["id"]
    assert outcomes(hits.connection)[0] == ("opened", "delivered", 4)


def require_taken(settings: Settings, connection: Connection, listener: Listener, count: int) -> None:
    delivery.deliver_next(settings, connection, "ops")
    if len(listener.taken) < count:
        raise ServiceDown(f"{len(listener.taken)} of {count} were taken")


def test_what_is_refused_or_too_old_ends_and_a_missing_channel_waits(
    told: Settings, hits: FoundRows, listener: Listener
) -> None:
    set_rule(hits.connection, "outage", "hit", "outages")
    look(hits.connection)
    listener.mood = REFUSES
    hits.change(hit("post:0:1"))
    deliver(told, hits.connection)
    assert outcomes(hits.connection) == [("opened", "refused", 1)]
    hits.change(hit("post:0:2"))
    nowhere = told.model_copy(update={"notification_channels": {}})
    look(hits.connection)
    assert delivery.waiting_channels(hits.connection) == {"ops"}
    delivery.deliver_next(nowhere, hits.connection, "ops")
    [latest] = history.deliveries(hits.connection, None, 1)
    assert latest["failed"] == "TRUELOG_NOTIFICATION_CHANNELS has no channel ops"
    older_notifications(hits.connection, 4 * DAY)
    until(lambda: require_try(nowhere, hits.connection), 20, "a try")
    assert outcomes(hits.connection)[1] == ("opened", "abandoned", 2)
    listener.mood = TAKES
    deliver(told, hits.connection)
    assert listener.taken == []


@pytest.mark.parametrize("fault", ["notifier.delivered:1:kill", "notifier.taken_in:1:kill"])
def test_a_notifier_that_is_killed_tells_everything_with_the_same_ids(
    fault: str, told: Settings, hits: FoundRows, listener: Listener
) -> None:
    """It is killed after the receiver has accepted and before this is recorded, or before what it read is recorded."""
    set_rule(hits.connection, "outage", "hit", "outages")
    look(hits.connection)
    url = json.dumps({"ops": {"kind": "webhook", "url": listener.url}})
    process = start(told, str(Path(service.__file__)), fault=fault, TRUELOG_NOTIFICATION_CHANNELS=url)
    hits.change(hit("post:0:1"))
    process.wait_kill()
    accepted = [each["id"] for each in listener.taken]
    assert len(accepted) == (1 if "delivered" in fault else 0)
    hits.change(hit("post:0:2"))
    successor = start(told, str(Path(service.__file__)), TRUELOG_NOTIFICATION_CHANNELS=url)
    expected = len(accepted) + 2
    successor.wait(lambda: len(listener.taken) >= expected, 30, "the notifications")
    assert {each["id"] for each in listener.taken[: len(accepted)]} <= {each["id"] for each in listener.taken[-2:]}
    assert sorted(each["row"]["document"] for each in listener.taken[-2:]) == ["post:0:1", "post:0:2"]
    check_ready = declaration.SERVICE.check
    assert check_ready is not None
    check_ready.ready(told)
    assert successor.end() == 0
    assert [outcome for _, outcome, _ in outcomes(hits.connection)] == ["delivered"] * 2


def test_an_outbox_keeps_what_the_notifier_has_not_read(told: Settings, hits: FoundRows, listener: Listener) -> None:
    """Rows stay although they are published. After seven days they go, and the notifier goes on behind them."""
    feed = ViewFeed(told, hits.connection, "search_hits", 1)
    set_rule(hits.connection, "outage", "hit", "outages")
    look(hits.connection)
    hits.change(hit("post:0:1"))
    hits.change(hit("post:0:2"))
    older(hits.connection, 2 * HOUR)
    feed.trim(10**9)
    deliver(told, hits.connection)
    assert len(listener.taken) == 2
    hits.change(hit("post:0:3"))
    older(hits.connection, 8 * DAY)
    feed.trim(10**9)
    deliver(told, hits.connection)
    hits.change(hit("post:0:4"))
    deliver(told, hits.connection)
    assert [each["row"]["document"] for each in listener.taken] == ["post:0:1", "post:0:2", "post:0:4"]


def test_the_commands_list_rules_and_deliveries(told: Settings, hits: FoundRows) -> None:
    set_rule(hits.connection, "outage", "hit", "outages")
    look(hits.connection)
    hits.change(hit("post:0:1"))
    deliver(told, hits.connection)
    [listed] = answer("notifications", "list")["notifications"]
    assert (listed["notification"], listed["delivered"], listed["waiting"]) == ("outage", 1, 0)
    shown = answer("notifications", "show", "outage")
    assert shown["deliveries"] == answer("notifications", "deliveries", "outage")["deliveries"]
    assert answer("notifications", "deliveries", "--waiting")["deliveries"] == []
    assert "delivered after 1 tries" in truelog("notifications", "deliveries").stdout
    assert "hit outages" in truelog("notifications", "list").stdout
    assert "channel: ops" in truelog("notifications", "show", "outage").stdout
    assert truelog("notifications", "show", "other").returncode == 2
    for wrong in ((), ("--match", "a", "--hit", "b")):
        assert "say what to notify of" in truelog("notifications", "add", "a", "--to", "x", *wrong).stderr
    assert "no channel 'x'" in truelog("notifications", "add", "a", "--hit", "b", "--to", "x").stderr
