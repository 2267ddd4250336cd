"""The shipped rules and the rules of `docs/patterns.md` are valid, and the page lists what rules may name."""

import re
from pathlib import Path

import pytest

from rules.sources import SOURCES
from truelog.patterns import expression, files
from truelog.patterns import rule as rules
from truelog.schema.loading.events import load_events
from truelog.support.settings import PROJECT

FILES = sorted((PROJECT / "include" / "rules").glob("*.rule"))
PAGE = (PROJECT / "docs" / "patterns.md").read_text()
TYPES = {"text": (str,), "number": (int, float), "boolean": (bool,)}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_shipped_rule_is_valid_and_has_the_name_of_its_file(file: Path) -> None:
    assert files.read(file.read_text(), SOURCES).rule == file.stem
    assert f"| `{file.stem}` |" in PAGE


def test_the_rule_of_the_page_is_valid() -> None:
    [text] = re.findall(r"```rule\n(.*?)```", PAGE, re.DOTALL)
    assert files.read(text, SOURCES).rule == "payments_from_another_country"


def test_the_page_lists_what_rules_may_name() -> None:
    rows = [
        f"| `{name}` | {', '.join(sorted(each.entities))} | {', '.join(sorted(each.columns))} |"
        for name, each in sorted(SOURCES.items())
    ]
    assert "\n".join(rows) in PAGE


def test_the_page_has_the_limits_of_rules() -> None:
    for limit in (rules.MOST_BYTES, expression.MOST_CHARACTERS, expression.MOST_PARTS):
        assert f"{limit:,} " in PAGE


def test_sources_name_fields_of_their_event_types_with_their_types() -> None:
    types = load_events()
    for name, source in SOURCES.items():
        fields = {each.name: each.python_type for each in types[name].fields}
        assert set(source.entities.values()) <= fields.keys()
        assert all(fields[column] in TYPES[kind] for column, kind in source.columns.items())
        closed = {each.name: list(each.values) for each in types[name].fields if each.values}
        assert {column: list(values) for column, values in source.known.items()} == closed
