"""`docs/searches.md` lists what searches may name, and the limits of a query."""

from searches.sources import SOURCES
from truelog.schema.loading.events import load_events
from truelog.searches import query
from truelog.support.settings import PROJECT

PAGE = (PROJECT / "docs" / "searches.md").read_text()


def test_the_page_lists_what_searches_may_name() -> None:
    rows = [f"| `{name}` | {', '.join(each.fields)} |" for name, each in sorted(SOURCES.items())]
    assert "\n".join(rows) in PAGE


def test_the_page_has_the_limits_of_a_query() -> None:
    assert f"{query.MOST_CHARACTERS:,} characters, {query.MOST_TERMS} words" in PAGE
    assert f"{query.MOST_DEPTH} nested parentheses" in PAGE


def test_sources_name_text_fields_of_their_event_types() -> None:
    types = load_events()
    for name, source in SOURCES.items():
        assert {*source.fields} <= {each.name for each in types[name].fields if each.python_type is str}
        closed = {each.name: {*each.values} for each in types[name].fields if each.values}
        assert all({*values} <= closed[column] for column, values in source.known.items())
