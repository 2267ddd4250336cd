"""Searches of clicks, and a view of their hits, for the tests of several packages."""

from tests.beds.archived import Archived
from truelog import Searches, TextSource

SOURCES = {"click": TextSource(fields=("url", "search_id"))}
HITS = Searches(sources=SOURCES, publish=True)


def set_search(ground: Archived, name: str, query: str, begins: str | None = None) -> None:
    """A record that sets a search. It judges the clicks from these offsets on, or all later clicks."""
    _record(ground, name, begins, verb="set", event_type="click", query=query)


def retire(ground: Archived, name: str) -> None:
    _record(ground, name, None, verb="retired")


def ends(ground: Archived) -> str:
    return ground.positions.only(["click"]).as_json()


def click(ground: Archived, *texts: str, partition: int = 0) -> None:
    """Archive clicks with these texts as URLs, and stream what is new."""
    ground.click(partition, [(text, "1", 3 * 3600) for text in texts])
    ground.stream()


def hits(ground: Archived) -> list[tuple[str, int, str]]:
    """The rows that readers see: search, version, and the coordinates of the event."""
    query = f"SELECT search, search_version, document FROM views.{ground.compiled.name}"
    found = ground.lab.connection.execute(query.encode()).fetchall()
    return sorted((search, version, document.removeprefix("click:")) for search, version, document in found)


def _record(ground: Archived, name: str, begins: str | None, **fields: str) -> None:
    values = {"search": name, "begins": begins or ends(ground), "occurred_at": "2026-03-01T03:00:00Z", **fields}
    ground.record("stored_search", [values])
