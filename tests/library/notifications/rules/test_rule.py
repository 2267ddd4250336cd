"""Notification rules: what is refused, and the columns that templates may name."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import ValidationError

from commands.set_notification import SetNotification
from tests.library.notifications.found_rows import hit, match
from truelog.notifications.rules.declaration import check
from truelog.notifications.rules.found import KINDS
from truelog.support.errors import BadInput


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"template": "$colour"}, "a hit has no column colour; it has document"),
        ({"template": "100 $"}, r"write columns as \$name"),
        ({"template": " "}, r"write columns as \$name"),
        ({"template": "${snippet.__class__}"}, r"write columns as \$name"),
        ({"group_by": "entity_id"}, "a hit has no column entity_id"),
        ({"kind": "tick"}, "a rule is about a match or a hit or a row"),
    ],
)
def test_a_bad_rule_is_refused(changed: dict[str, Any], reason: str) -> None:
    rule = {"kind": "hit", "subject": "a", "channel": "ops", "window_seconds": 60, "template": "$search"}
    assert check(rule, "a").fits(hit("post:0:1", "a"))
    with pytest.raises(BadInput, match=reason):
        check(rule | changed, "a")


def test_columns_of_templates_are_columns_of_the_views() -> None:
    for name, row in (("hit", hit("a")), ("match", match("a"))):
        assert set(KINDS[name].columns) <= row.keys()
        rule = {"kind": name, "subject": "a", "channel": "ops", "window_seconds": 60, "template": KINDS[name].template}
        assert check(rule, "a").text(row)


def test_a_key_without_the_time_of_its_span_is_not_expired() -> None:
    rule = {"kind": "match", "subject": "a", "channel": "ops", "window_seconds": 60, "template": "$rule"}
    former = {"entity_id": "ann", "entity": "customer", "match_id": "a"}  # a key of version 1 of `matches`
    limit = datetime(2026, 6, 1, tzinfo=UTC)
    assert check(rule, "a").is_expired(json.dumps(former | {"span_end": "2026-05-31T00:00:00+00:00"}), limit)
    assert not check(rule, "a").is_expired(json.dumps(former), limit)


def test_an_incident_of_hits_lasts_an_hour_by_default() -> None:
    common = {"notification": "a", "subject": "b", "channel": "ops", "template": "c"}
    assert SetNotification.model_validate(common | {"kind": "hit"}).window_seconds == 3_600
    assert SetNotification.model_validate(common | {"kind": "row", "condition": "d"}).window_seconds is None
    with pytest.raises(ValidationError, match="condition: a rule about a row needs it"):
        SetNotification.model_validate(common | {"kind": "row"})
