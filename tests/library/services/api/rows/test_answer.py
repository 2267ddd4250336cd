"""The header that says what the rows of an answer were made of."""

import json

import pytest

from truelog.services.api.rows import answer
from truelog.services.api.rows.answer import Freshness, Source


@pytest.mark.parametrize(("partitions", "has_positions"), [(4, True), (400, False)])
def test_the_header_of_a_view_of_many_partitions_is_short(partitions: int, has_positions: bool) -> None:
    """A proxy would refuse the answer otherwise."""
    offsets = json.dumps({"page_view": {str(number): 10**9 for number in range(partitions)}})
    head = answer.head(Source("carts", 2, "stream", None, offsets, "{}", "s"), Freshness(2, "stream", None, "late"))
    header = answer.header(head)
    assert len(header) <= 2_048
    rest = {"view": "carts", "version": 2, "layer": "stream", "clock": None, "as_of": None, "age": None}
    assert json.loads(header) == rest | ({"positions": json.loads(offsets)} if has_positions else {})
