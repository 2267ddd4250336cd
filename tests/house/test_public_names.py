"""The names that others rely on: the topics of the log, and the public API for declarations.

A removed or renamed name breaks logs that exist, or view files that people have written. Additions need no change here.
"""

import truelog
from truelog.schema.loading.events import event_names

TOPICS = """
block cart_event claim click comment customers dead_letter document_edit erasure follow friendship like machine_state
notification_rule page_edit page_view payment post price profile rate_policy reading rule search share shipment
stored_search ticks tweet
"""
API = """
Bloom Change Derived DerivedWords Distinct Event EventSource EventWindow First FirstSeen Group Join Latest Match Max
Meaning Min Patterns Quality Quantiles Required Searches Steps Sum TextSource Topic Totals Value View captured lateness
latest once
"""


def test_the_topics_keep_their_names() -> None:
    assert set(TOPICS.split()) <= set(event_names())


def test_the_public_api_keeps_its_names() -> None:
    assert set(API.split()) <= set(truelog.__all__)
