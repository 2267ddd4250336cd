"""Law 7: a view's fingerprint covers the code that made its table, including the library code.

A failure means that records or values have changed their meaning, so merges must not add to existing tables. Raise
`MEANING` in `truelog.tables.fingerprint` and record the new digests here.
"""

import hashlib
import json
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from tests.beds.lab import Lab
from tests.laws.views import EVERY_MEASURE
from tests.library.hostile import GOOD, HOSTILE, THING
from truelog.log import records
from truelog.schema.decode import decode
from truelog.schema.event import FUTURE_LIMIT
from truelog.tables import fingerprint

DECODED = {1: "88f62afc8fc78b3e0ff0cff361441ed1261badb1a4d027e402d59a8f345e3443"}
TOTALLED = {1: "ba315dea348cf05ce84fdce04f71515beff72a9f76641d9352f09e6063f5c290"}


def digest(rows: list[dict[str, object]]) -> str:
    return hashlib.sha256(json.dumps(rows, default=str, sort_keys=True).encode()).hexdigest()


def test_records_have_not_changed_their_meaning() -> None:
    """The digest leaves out the reasons why records are invalid, because their wording may come from a library."""
    values = pa.array([GOOD, *HOSTILE], pa.binary())
    times = pa.array([datetime(2026, 11, 21, 10, 0, tzinfo=UTC)] * len(values), pa.timestamp("us", "UTC"))
    rows = decode(THING, values, times, FUTURE_LIMIT).to_pylist()
    good = [row for row in rows if row["invalid"] is None]
    assert 1 < len(good) < len(rows)
    assert digest([row | {"invalid": row["invalid"] is not None} for row in rows]) == DECODED[fingerprint.MEANING]


def test_measures_have_not_changed_their_meaning(lab: Lab) -> None:
    view, shape = lab.compiled("meant", EVERY_MEASURE), records.schema(lab.types["page_view"])
    event = {
        "topic": "page_view",
        "partition": 0,
        "event_time": datetime(2026, 3, 1, tzinfo=UTC),
        "browser": "é",
        "bytes": 2**40,
        "url": "http://h/p",
        "status": 404,
    }
    events = [event | {"offset": n, "visitor_id": f"v{n}", "response_ms": 10**n} for n in range(9)]
    rows = view.own.totals(EVERY_MEASURE.transform(lab.spark.createDataFrame(events, shape)))
    assert digest([row.asDict() for row in view.own.stored(rows).collect()]) == TOTALLED[fingerprint.MEANING]


def test_the_meaning_is_part_of_a_views_fingerprint(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    before = lab.compiled("same", EVERY_MEASURE).fingerprint
    assert lab.compiled("same", EVERY_MEASURE).fingerprint == before
    monkeypatch.setattr(fingerprint, "MEANING", fingerprint.MEANING + 1)
    assert lab.compiled("same", EVERY_MEASURE).fingerprint != before
