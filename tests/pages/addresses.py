"""Addresses at which the pages have something to show, with the beginnings of their titles."""

from tests.pages.found_by_rules import RULE, SEARCH

CONTRIBUTORS = "components"  # a page for administrators
TITLES = {
    "flow": "Flow",
    "streams": "Streams",
    "views": "Views",
    "analytics?view=page_views&by=host": "Analytics",
    "analytics?view=page_views&by=page&where=host%3Dshop.example&hours=720": "Analytics",
    "analytics?view=page_views&by=host&chart=bars": "Analytics",
    "analytics?view=page_views&by=host&since=2020-01-01T00:00&until=2020-01-02T00:00": "Analytics",  # no rows
    "rules": "Rules",
    f"pattern?name={RULE}": RULE,
    f"search?name={SEARCH}": SEARCH,
    "view?name=page_views": "page_views",
    "reconciliations": "Reconciliations",
    "reconciliation?id=59": "page_views",
    "certificates": "Certificates",
    "certificates?view=page_views": "Certificates",
    "quality": "Quality",
    "quality?of=dead_letter": "Quality",
    "dead-letters": "Dead letters",
    "backfills": "No backfill is running",
    "lag?reader=page_audience&hours=6&partitions=1": "Lag",
    "freshness?hours=6": "Freshness",
    "alerts": "3 open alerts",
    "timeline": "Timeline",
    "operations": "Operations",
    "record?list=page_view": "Records",
    "record?topic=page_view&partition=0&offset=0": "page_view 0:0",
    "explain?view=page_views&where=host+is+NULL": "Explain",
    CONTRIBUTORS: "Components",
}


def first_of_each_page() -> dict[str, str]:
    """The first address of each page, by the name of the page."""
    return {address.partition("?")[0]: address for address in reversed(TITLES)}
