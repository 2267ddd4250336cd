"""Placeholders: braces that belong to the SQL stay as they are."""

import pytest

from truelog.views.placeholders import filled, unknown

VALUES = {"view": "v", "clock": "now()"}


@pytest.mark.parametrize(
    ("text", "sql"),
    [
        ("{view} {clock}", "v now()"),
        ("{view} {{2}}", "v {2}"),
        ("{view} {2} {2,} {,3} {}", "v {2} {2,} {,3} {}"),
        ("{view} {veiw}", "v {veiw}"),
        ("{view} {{1,2},{3}}", "v {{1,2},{3}}"),
        ("{view} { } { {view} }", "v { } { v }"),
        ("{view!r} {view:>9} {view.x} {view[0]}", "{view!r} {view:>9} {view.x} {view[0]}"),
        ("{", "{"),
    ],
)
def test_only_known_names_are_filled(text: str, sql: str) -> None:
    assert filled(text, VALUES) == sql


def test_unknown_names_are_found() -> None:
    assert unknown("{view} {veiw} {2}", VALUES) == {"veiw"}
    assert unknown("{view} {{veiw}}", VALUES) == set()
