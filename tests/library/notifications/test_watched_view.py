"""What `truelog notifications add --row` checks before it sends a rule."""

import json

import pytest

from tests.command import truelog
from tests.library.notifications.found_rows import FoundRows
from truelog.notifications import watched_view
from truelog.support.errors import BadInput

ADD = ("notifications", "add", "many", "--row", "cart", "--to", "ops", "--when")


def test_a_view_that_publishes_has_columns(carts: FoundRows) -> None:
    assert watched_view.columns(carts.connection, "cart") == {
        "cart_id": "text",
        "product": "text",
        "quantity": "number",
    }
    with pytest.raises(BadInput, match="there is no view nothing, or its stream has not run yet"):
        watched_view.columns(carts.connection, "nothing")
    FoundRows(carts.connection, "cart", publish=False)
    with pytest.raises(BadInput, match="cart does not publish its changes: declare it with publish=True"):
        watched_view.columns(carts.connection, "cart")


def test_the_command_refuses_a_rule_that_no_row_could_fit(carts: FoundRows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRUELOG_NOTIFICATION_CHANNELS", json.dumps({"ops": {"kind": "webhook", "url": "http://a"}}))
    ran = truelog(*ADD, "colour = 'red'")
    assert (ran.returncode, "cart has no column colour" in ran.stderr) == (2, True)
    assert "window_seconds: a rule about a row has none" in truelog(*ADD, "quantity > 1", "--window", "1h").stderr
    assert "There is no view 'nothing'" in truelog(*ADD[:4], "nothing", *ADD[5:], "quantity > 1").stderr
    hit = ("notifications", "add", "a", "--hit", "b", "--to", "ops")
    assert "for_seconds: a rule about a hit has none" in truelog(*hit, "--for", "5m").stderr
