"""The rulebook lists the versions that a view has counted, with their rows."""

from dataclasses import replace

import pytest

from tests.beds.archived import Archived
from tests.library.click_rules import MATCHES, PAIR, retire, set_rule
from truelog.rules import rulebook
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
