"""Rows as JSON: every digit that PostgreSQL writes is there."""

from truelog.history.shown_rows import ShownRow, as_data
from truelog.storage import exact_json


def test_rows_keep_every_digit() -> None:
    text = '{"symbol":"BIG","amount":90071992547407.93}'
    shown = ShownRow(text, text)
    assert exact_json.write([shown.key_data, *as_data((shown, ShownRow(text, None)))]) == f"[{text},{text}]"
