"""The rulebook lists the versions that a view has counted, with their rows."""

from dataclasses import replace
from datetime import timedelta

import pytest

from tests.beds.archived import Archived
from tests.library.click_rules import ALONE, MATCHES, PAIR, retire, set_rule
from truelog.lag.time_steps import TimeRange
from truelog.rules import rulebook
from truelog.support import timestamps
from truelog.support.errors import BadInput, NotMade
from truelog.tables import deploy


def a_changed_and_a_retired_rule(ground: Archived) -> None:
    set_rule(ground, "pair", **PAIR)
    set_rule(ground, "gone", **PAIR)
    ground.click(0, [("a", "1", 3 * 3600), ("a", "5", 3 * 3600 + 1)])
    set_rule(ground, "pair", **PAIR | {"within": "5 seconds"})
    retire(ground, "gone")
    ground.stream()


pytestmark = pytest.mark.ground(view=MATCHES, filled=a_changed_and_a_retired_rule)


def test_versions_with_their_matches(ground: Archived) -> None:
    connection, name = ground.lab.connection, ground.compiled.name
    known = rulebook.read_rules(connection, name, MATCHES)
    assert [(each.rule, each.version, each.ended is None, dict(each.outcomes)) for each in known] == [
        ("gone", 1, False, {"found": 1}),
        ("pair", 1, False, {"found": 1}),
        ("pair", 2, True, {}),
    ]
    assert "WITHIN 5 seconds" in rulebook.of_rule(known, "pair")[-1].text
    with pytest.raises(BadInput, match="there is no rule other; the view has gone, pair"):
        rulebook.of_rule(known, "other")
    [match] = rulebook.latest_matches(connection, name, "pair", 5)
    assert [each["offset"] for each in match["events"]] == [0, 1]
    assert rulebook.count_oversized(connection, name) == 0


def test_matches_that_wait_are_counted_apart_and_listed_after_those_that_are_shown(ground: Archived) -> None:
    connection, name, begin = ground.lab.connection, ground.compiled.name, 3 * 3600
    set_rule(ground, "alone", **ALONE | {"late_after": "5 seconds"})
    ground.click(0, [("shown", "1", begin), *((f"page{number}", "1", begin + 60) for number in range(60))])
    ground.tick(begin + 30)
    ground.stream()
    [known] = rulebook.of_rule(rulebook.read_rules(connection, name, MATCHES), "alone")
    assert known.outcomes == {"found": 1, "waiting": 60}
    latest = rulebook.latest_matches(connection, name, "alone", 50)
    assert (latest[0]["entity_id"], [each["outcome"] for each in latest]) == ("shown", ["found", *["waiting"] * 49])
    span = TimeRange(3600, timestamps.parse_timestamp(latest[-1]["last_time"]) + timedelta(seconds=60))
    course = rulebook.matches_over_time(connection, name, "alone", span)
    assert {outcome: sum(counts) for outcome, counts in course.found.items()} == {"found": 1, "waiting": 60}
    ground.tick(begin + 100)
    ground.stream()
    [known] = rulebook.of_rule(rulebook.read_rules(connection, name, MATCHES), "alone")
    assert known.outcomes == {"found": 61}


def test_a_new_version_that_readers_do_not_see_yet_hides_no_rule(ground: Archived) -> None:
    connection, name = ground.lab.connection, ground.compiled.name
    new = replace(MATCHES, version=2)
    before = rulebook.read_rules(connection, name, MATCHES)
    deploy.deploy_table(connection, ground.lab.compiled(name, new))
    assert rulebook.read_rules(connection, name, new) == before
    assert len(rulebook.latest_matches(connection, name, "pair", 5)) == 1


def test_a_view_without_a_table_is_named(ground: Archived) -> None:
    with pytest.raises(NotMade, match="no application has created a table of nowhere"):
        rulebook.read_rules(ground.lab.connection, "nowhere", MATCHES)
