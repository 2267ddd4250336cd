"""Posted events, good and hostile, and what the collector and the decoder make of them."""

from datetime import UTC, datetime

import pyarrow as pa
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from tests.library.hostile import GOOD, HOSTILE, THING, mutilated
from truelog.schema.decode import decode
from truelog.schema.event import FUTURE_LIMIT, EventType
from truelog.schema.loading.events import load_events
from truelog.sources.collector.classifier import ClassifiedRecord, EventClassifier, Receipt
from truelog.sources.collector.parser import split_document

REPEATABLE = settings(derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
TYPES = {"thing": THING, **load_events()}
CLASSIFIER = EventClassifier(TYPES, max_bytes=200_000)
MOST = 1000  # events in a body
RECEIPT = Receipt(datetime(2026, 11, 21, 10, 0, 0, 123000, tzinfo=UTC), "tester")


def typed(raw: bytes) -> bytes:
    """The same record with a `type` field."""
    return raw.replace(b'{"event_id"', b'{"type":"thing","event_id"', 1)


EVENT = typed(GOOD)
POSTED = [typed(raw) for raw in HOSTILE]
posted = st.one_of(st.sampled_from(POSTED), mutilated().map(typed))


def classify(*raw: bytes) -> list[ClassifiedRecord]:
    """The records from bodies that are posted one by one."""
    return [record for each in raw for record in CLASSIFIER.classify(split_document(each, MOST), RECEIPT)]


def defect(raw: bytes) -> tuple[str, str]:
    [record] = classify(raw)
    assert record.defect is not None
    return record.defect.field, record.defect.reason


def decoded(event_type: EventType, *values: bytes) -> pa.RecordBatch:
    """The records as the stream reads them, with the earliest possible broker time."""
    times = pa.array([RECEIPT.time] * len(values), pa.timestamp("us", "UTC"))
    return decode(event_type, pa.array(values, pa.binary()), times, FUTURE_LIMIT)
