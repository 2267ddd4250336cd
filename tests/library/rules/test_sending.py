"""Adding and retiring rules and searches on real servers: what enters the log, and what is refused before."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from rules.sources import SOURCES
from tests.command import answer, truelog
from tests.library.commands.command_client import start_commands
from tests.library.notifications.found_rows import found_rows
from truelog.log import topics
from truelog.log.kafka_reader import messages
from truelog.patterns.versions import read_ends, read_rule
from truelog.storage.database import connect
from truelog.support.settings import PROJECT, Settings

PAGE = (PROJECT / "docs" / "patterns.md").read_text()
SEARCHES = (PROJECT / "docs" / "searches.md").read_text()
NOTIFICATIONS = (PROJECT / "docs" / "notifications.md").read_text()
RULE = re.findall(r"```rule\n(.*?)```", PAGE, re.DOTALL)[0]


def records_of(settings: Settings, topic: str) -> list[dict[str, Any]]:
    ends = topics.committed_ends(topics.client(settings), [topic])
    return [json.loads(each.value() or b"") for each in messages(settings, topic, 0, 0, ends.at(topic, 0))]


def require_examples(page: str) -> None:
    """The commands of a page say what the page says."""
    for command, shown in re.findall(r"^\$ truelog (.*)\n(.*)\n", page, re.MULTILINE):
        ran = truelog(*shlex.split(command))
        assert shown in (ran.stdout.strip(), ran.stderr.strip()), command


def test_rules_and_searches_are_added_changed_and_retired(
    platform: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One test, because the service takes seconds to start. The examples of two pages are part of it."""
    service = start_commands(platform)
    try:
        monkeypatch.chdir(tmp_path)
        Path("payments.rule").write_text(RULE)
        Path("wrong.rule").write_text(RULE.replace("verb = 'failed'", "colour = 'red'"))
        require_examples(PAGE)
        require_examples(SEARCHES)

        again = answer("patterns", "add", "payments.rule", exit_code=1)
        assert "in force with this definition already" in again["refused"]
        Path("payments.rule").write_text(RULE.replace("10 minutes", "5 minutes"))
        changed = answer("patterns", "add", "payments.rule")
        assert (changed["rule"], changed["in_log"]) == ("payments_from_another_country", True)
        assert answer("patterns", "retire", changed["rule"])["in_log"]
        assert "no rule" in answer("patterns", "retire", changed["rule"], exit_code=1)["refused"]
        assert "no rule never is in force" in truelog("patterns", "retire", "never").stdout

        records = [each for each in records_of(platform, "rule") if each["rule"] == changed["rule"]]
        assert [each["verb"] for each in records] == ["set", "set", "retired"]
        assert all(read_rule(each["rule"], each["definition"], SOURCES) for each in records[:2])
        assert all((read_ends(each["begins"]) or {}).keys() == SOURCES.keys() for each in records)
        hostile = '{"rule": "x", "steps": ' + "[" * 9_000
        Path("hostile.rule").write_text(hostile)
        ran = truelog("patterns", "add", "hostile.rule")
        assert (ran.returncode, "nested too deeply" in ran.stderr or "not valid JSON" in ran.stderr) == (2, True)
        require_searches(platform)
        monkeypatch.setenv(
            "TRUELOG_NOTIFICATION_CHANNELS", re.findall(r"CHANNELS='(.*?)'", NOTIFICATIONS, re.DOTALL)[0]
        )
        with connect(platform, autocommit=True) as connection, found_rows(connection, "cart"):
            require_examples(NOTIFICATIONS)
        require_notifications(platform)
    finally:
        service.die()


def require_notifications(settings: Settings) -> None:
    """A notification rule is refused, changed and retired, and its record does not contain the channel's secret."""
    add = ("notifications", "add", "outage", "--hit", "outages", "--to", "on_call", "--group-by", "event_type")
    assert "in force with this declaration already" in answer(*add, exit_code=1)["refused"]
    [bulk, fraud, outage] = answer("notifications", "list")["notifications"]
    assert (bulk["condition"], bulk["until"], bulk["for_seconds"]) == ("quantity > 100", "quantity < 90", 300)
    assert bulk["template"] == "bulk: cart_id=$cart_id, product=$product"
    assert answer("notifications", "retire", "bulk")["in_log"]
    assert (fraud["notification"], outage["group_by"], outage["window_seconds"]) == ("fraud", ["event_type"], 3600)
    assert answer(*add, "--window", "30m")["in_log"]
    assert answer("notifications", "retire", "outage")["in_log"]
    assert "no notification outage" in answer("notifications", "retire", "outage", exit_code=1)["refused"]
    assert [each["notification"] for each in answer("notifications", "list")["notifications"]] == ["fraud"]
    records = records_of(settings, "notification_rule")
    assert [each["verb"] for each in records] == ["set", "set", "set", "retired", "set", "retired"]
    assert "a-secret" not in json.dumps(records)


def require_searches(settings: Settings) -> None:
    """A search is refused, changed to another event type, and retired. Its records name the topics that it reads."""
    again = answer("searches", "add", "outages", "kafka (down OR outage) NOT planned", "--on", "post", exit_code=1)
    assert again["refused"] == "the search outages is in force with this query already"
    changed = answer("searches", "add", "outages", "kafka", "--on", "comment")
    assert (changed["search"], changed["in_log"]) == ("outages", True)
    assert "searches cannot read search" in truelog("searches", "add", "outages", "kafka", "--on", "search").stderr
    assert "Wrong" not in truelog("searches", "add", "Wrong!", "kafka", "--on", "post").stdout
    assert "outages is retired" in truelog("searches", "retire", "outages").stdout
    assert "no search" in answer("searches", "retire", "outages", exit_code=1)["refused"]
    records = records_of(settings, "stored_search")
    assert [(each["verb"], each.get("event_type")) for each in records] == [
        ("set", "post"),
        ("set", "comment"),
        ("retired", None),
    ]
    topics_of = [[*(read_ends(each["begins"]) or {})] for each in records]
    assert topics_of == [["post"], ["comment", "post"], ["comment"]]
