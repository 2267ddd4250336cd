"""Who reads a view: the API counts the answers about its rows by key, and nothing else."""

from datetime import timedelta

import pytest

from tests.builders.views import a_view_reader
from tests.library.services.api.asking import asking
from tests.library.services.api.shop_views import PAGES, PRODUCTS
from truelog.services.api.answer_counts import AnswerCounts
from truelog.serving import view_readers
from truelog.storage.api_key import Role, add_key, revoke_key
from truelog.storage.database import Connection
from truelog.support.settings import Settings


def counted(connection: Connection, view: str) -> list[tuple[str, int]]:
    return [(each.reader, each.answers) for each in view_readers.readers(connection, view)]


def test_answers_about_rows_are_counted_by_key(postgresql: Settings, deployed: Connection) -> None:
    credential = add_key(deployed, "counted-shop", Role.READER, "test")
    try:
        with asking(postgresql) as api:
            for _ in range(3):
                assert api.get(f"/views/{PAGES}/rows", credential).status_code == 200
            assert api.get(f"/views/{PAGES}/relations/busy").status_code == 200
            made = api.request("POST", "/tokens", credential, json={"view": PAGES, "key": {"host": "a"}})
            assert api.get(f"/views/{PAGES}/rows", made.json()["token"]).status_code == 200  # of the key's holder
            for uncounted, status in ((f"/views/{PAGES}", 200), ("/views/nothing/rows", 404), ("/views", 200)):
                assert api.get(uncounted, credential).status_code == status
            assert api.get(f"/views/{PAGES}/rows", "").status_code == 401
        # The end of the service has stored the counts.
        assert counted(deployed, PAGES) == [("counted-shop", 4), ("reader", 1)]
        assert counted(deployed, PRODUCTS) == counted(deployed, "nothing") == []
    finally:
        revoke_key(deployed, "counted-shop", "test")


def test_counts_of_a_day_add_up_and_survive_an_outage(
    postgresql: Settings, deployed: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = AnswerCounts(postgresql)
    counts.add("other", "shop")
    counts.store()
    away = AnswerCounts(postgresql.model_copy(update={"database_port": 1}))
    away.add("other", "shop")
    away.store()  # PostgreSQL does not answer
    monkeypatch.setattr(away, "_settings", postgresql)
    away.add("other", "shop")
    away.store()
    assert counted(deployed, "other") == [("shop", 3)]


def test_readers_of_earlier_weeks_are_not_shown(deployed: Connection) -> None:
    a_view_reader(deployed, "old", "gone", ago=timedelta(days=8))
    a_view_reader(deployed, "old", "new", ago=timedelta(days=6))
    assert counted(deployed, "old") == [("new", 1)]
