"""What was rebuilt before an erasure is not stored after it: the archive may lack some of its records now."""

import uuid
from collections.abc import Callable

import pytest

from tests.beds.archived import PER_URL, Archived
from tests.builders.erasures import an_erasure, forget_erasures
from truelog.batch.rebuild import Rebuilder
from truelog.batch.rejudge import rebuild_under_reading
from truelog.erasure.erasure import Erasure
from truelog.erasure.subject import Subject
from truelog.kernel import merge
from truelog.log.positions import Positions
from truelog.support.errors import Stale
from truelog.tables.stage import StagedRows
from truelog.versions.build import fill


def erase(ground: Archived) -> None:
    subjects = frozenset({Subject.of(b"secret", "visitor_id", "eve")})
    ends = ground.positions.only(["click"])
    an_erasure(ground.lab.connection, Erasure(uuid.uuid4(), subjects, {"click": ("visitor_id",)}, ends))


@pytest.mark.ground(view=PER_URL)
@pytest.mark.parametrize(("work", "is_streamed"), [(rebuild_under_reading, True), (fill, False)])
def test_a_rebuild_from_before_an_erasure_is_not_stored(
    ground: Archived, work: Callable[[Rebuilder], object], is_streamed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ground.click(0, [("a", "5", 1)])
    ground.tick(20)
    if is_streamed:
        ground.stream()
    before = merge.positions(ground.lab.connection, ground.compiled)
    stage_rows = Rebuilder.stage_rows

    def erased_meanwhile(rebuilder: Rebuilder, at: Positions) -> StagedRows:
        staged = stage_rows(rebuilder, at)
        erase(ground)
        return staged

    try:
        with monkeypatch.context() as patched:
            patched.setattr(Rebuilder, "stage_rows", erased_meanwhile)
            with pytest.raises(Stale, match="read before erasure"):
                work(ground.rebuilder)
        assert merge.positions(ground.lab.connection, ground.compiled) == before
        work(ground.rebuilder)
        assert merge.positions(ground.lab.connection, ground.compiled).only(["click"]) == ground.positions.only(
            ["click"]
        )
    finally:
        forget_erasures(ground.lab.connection)
