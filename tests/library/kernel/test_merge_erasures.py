"""A batch that may have erased records is refused, whatever its process believes; the ledger decides."""

import uuid
from collections.abc import Iterator

import pytest

from tests.builders.erasures import an_erasure, forget_erasures
from tests.library.kernel.zombie import EVENTS, at, counter, stage_events
from truelog.erasure import ledger
from truelog.erasure.erasure import Erasure
from truelog.erasure.ledger import Step
from truelog.erasure.subject import Subject
from truelog.kernel import merge
from truelog.kernel.merge import Merge
from truelog.log.positions import Positions
from truelog.measures.registry import sql_functions
from truelog.storage.database import Connection, connect
from truelog.storage.migration import migrate
from truelog.support.errors import Stale
from truelog.support.settings import Settings
from truelog.tables import deploy as table
from truelog.tables import stage
from truelog.tables.compiled_view import CompiledView

SUBJECTS = frozenset({Subject.of(b"secret", "visitor_id", "ann")})


def erasure(end: Positions) -> Erasure:
    return Erasure(uuid.uuid4(), SUBJECTS, {"page_view": ("visitor_id",)}, end)


@pytest.fixture
def connection(postgresql: Settings) -> Iterator[Connection]:
    migrate(postgresql, sql_functions())
    with connect(postgresql, autocommit=True) as connection:
        yield connection
        forget_erasures(connection)


@pytest.fixture
def view(connection: Connection) -> CompiledView:
    compiled = counter(f"v{uuid.uuid4().hex[:8]}")
    table.deploy_table(connection, compiled)
    return compiled


def apply(connection: Connection, view: CompiledView, known: frozenset[str] = frozenset()) -> None:
    """Merge everything that the view lacks, as a batch that was read when the archive showed these erasures."""
    begin = merge.positions(connection, view).at("page_view", 0)
    staged = stage_events(connection, view, begin) if begin < EVENTS else stage.NO_ROWS
    merge.apply(connection, view, Merge(at(begin), at(EVENTS), staged, erasures=known))


def test_a_batch_from_before_an_erasure_is_refused_until_it_is_read_again(
    connection: Connection, view: CompiledView
) -> None:
    an_erasure(connection, erasure(at(3)))
    with pytest.raises(Stale, match="read before erasure"):
        apply(connection, view)
    assert not merge.positions(connection, view).offsets
    apply(connection, view, ledger.rewritten(connection))
    assert merge.positions(connection, view) == at(EVENTS)


def test_each_further_erasure_must_be_known(connection: Connection, view: CompiledView) -> None:
    an_erasure(connection, erasure(at(3)))
    known = ledger.rewritten(connection)
    an_erasure(connection, erasure(at(1)))
    with pytest.raises(Stale, match="read before erasure"):
        apply(connection, view, known)


def test_before_the_archive_shows_an_erasure_a_merge_goes_on(connection: Connection, view: CompiledView) -> None:
    an_erasure(connection, erasure(at(3)), Step.COUNTED)
    apply(connection, view)
    assert merge.positions(connection, view) == at(EVENTS)


def test_a_view_past_the_ends_and_other_topics_need_to_know_nothing(connection: Connection, view: CompiledView) -> None:
    apply(connection, view)
    an_erasure(connection, erasure(at(EVENTS)))
    an_erasure(connection, erasure(Positions({"page_view": {0: 100}}, {"page_view": "another-life"})))
    merge.apply(connection, view, Merge(at(EVENTS), at(EVENTS + 1), stage.NO_ROWS))
    assert merge.positions(connection, view) == at(EVENTS + 1)
