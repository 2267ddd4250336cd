"""What one event costs a Group whose key has many earlier events, and a search among many profiles.

A document has checkpoints, so an edit reads at most 200 earlier edits. A cart has none: an event reads all of them.
"""

from collections.abc import Iterator
from typing import LiteralString

from bench.row import Row
from bench.steps import Merged, Step, event, read
from tests.scenes.applications import Application
from truelog.log.kafka_producer import OutgoingRecord
from truelog.storage.database import connect
from truelog.support.settings import Settings

VIEWS = ("cart", "document", "people_search", "sessions")
FEW, EDITS, CHANGES, PROFILES = 1_000, 100_000, 10_000, 100_000
RARE, RARE_EVERY = "zither", 1_000

_HALF = """
SELECT text FROM views.document_snapshots WHERE document_id = 'long' AND "offset" = (
    SELECT max("offset") / 2 FROM views.document_history WHERE document_id = 'long'
)
"""
_SEARCH = """
SELECT person_id, name, headline FROM views.people_search_documents, truelog.word_query('{words}') AS q
WHERE document @@ q ORDER BY ts_rank(document, q) DESC LIMIT 10
"""


def run(settings: Settings, application: Application) -> Iterator[Row]:
    """The rows of all steps, then the times of reads. The application must run the views."""
    with connect(settings, autocommit=True) as connection:
        merged = Merged(settings, application, connection, VIEWS)
        yield from (merged.step(*step) for step in (*_documents(), *_carts(), *_profiles()))
        for read_step in _reads():
            yield read(connection, *read_step)


def _reads() -> Iterator[tuple[str, LiteralString, int]]:
    """What is read, the query and the number of rows."""
    yield f"a document with {EDITS:,} edits", "SELECT text FROM views.document WHERE document_id = 'long'", 1
    yield "its text after half of its edits", _HALF, 1
    yield f"a search for a word of {PROFILES // RARE_EVERY} profiles", _SEARCH.format(words=RARE), 10
    yield f"a search for a word of {PROFILES:,} profiles", _SEARCH.format(words="engineer"), 10


def _documents() -> Iterator[Step]:
    yield "a document's first edit", [_edit("short", 0)]
    yield f"{FEW:,} edits of one document", (_edit("short", number) for number in range(1, FEW))
    yield f"an edit of a document with {FEW:,} edits", [_edit("short", FEW)]
    yield f"{EDITS:,} edits of one document", (_edit("long", number) for number in range(EDITS))
    yield f"an edit of a document with {EDITS:,} edits", [_edit("long", EDITS)]


def _carts() -> Iterator[Step]:
    yield "a cart's first event", [_added("small", 0)]
    yield f"{FEW:,} events of one cart", (_added("small", number) for number in range(1, FEW))
    yield f"an event of a cart with {FEW:,} events", [_added("small", FEW)]
    yield f"{CHANGES:,} events of one cart", (_added("large", number) for number in range(CHANGES - 1))
    yield f"an event of a cart with {CHANGES:,} events", [_added("large", CHANGES)]


def _profiles() -> Iterator[Step]:
    yield f"{PROFILES:,} profiles", (_profile(number) for number in range(PROFILES))
    yield "a changed profile", [_profile(0)]


def _edit(document: str, number: int) -> OutgoingRecord:
    """Replace a letter, or append it: the text has 4,000 letters at most."""
    fields = {"position": number % 4_000, "removed": 1, "inserted": "a", "event_id": f"{document} {number}"}
    return event("document_edit", document, document_id=document, author_id="ann", **fields)


def _added(cart: str, number: int) -> OutgoingRecord:
    product = f"product {number % 50}"
    return event("cart_event", cart, cart_id=cart, visitor_id="ann", verb="added", product=product, quantity=1)


def _profile(number: int) -> OutgoingRecord:
    person, rare = f"p{number}", f" and {RARE}" if number % RARE_EVERY == 0 else ""
    return event(
        "profile",
        person,
        person_id=person,
        verb="changed",
        name=f"Person {number}",
        headline=f"Engineer for number {number}",
        keywords=f"kafka{rare}",
        company=f"Company {number % 100}",
    )
