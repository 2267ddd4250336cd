"""Which versions are rebuilt under another reading, and that nothing from before an erasure is stored after it."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from tests.beds.archived import PER_URL, Archived
from tests.builders.erasures import an_erasure, forget_erasures
from truelog.batch import rejudge
from truelog.batch.batch_context import BatchContext
from truelog.batch.rebuild import Rebuilder
from truelog.batch.rejudge import rebuild_under_reading
from truelog.control import event_registry, view_versions
from truelog.control.view_loader import LoadedViews
from truelog.erasure.erasure import Erasure
from truelog.erasure.subject import Subject
from truelog.kernel import merge
from truelog.log.positions import Positions
from truelog.support.errors import Stale
from truelog.tables import deploy
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
    repairs = merge.repairs(ground.lab.connection, ground.compiled)
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
        assert merge.repairs(ground.lab.connection, ground.compiled) == repairs
        work(ground.rebuilder)
        assert merge.positions(ground.lab.connection, ground.compiled).only(["click"]) == ground.positions.only(
            ["click"]
        )
        if is_streamed:  # so that no batch whose rows follow from those before the rebuild is merged
            assert merge.repairs(ground.lab.connection, ground.compiled) == repairs + 1
    finally:
        forget_erasures(ground.lab.connection)


@pytest.mark.ground(view=PER_URL)
def test_the_version_that_readers_see_is_rebuilt_too(ground: Archived, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file declares version 2. Readers still see version 1, which its stream leaves at its positions meanwhile."""
    lab, name, first = ground.lab, ground.compiled.name, ground.compiled
    ground.click(0, [("a", "5", 1)])
    ground.tick(20)
    ground.stream()
    view_versions.record_source(lab.connection, name, 1, "from tests.beds.archived import PER_URL\n\nVIEW = PER_URL\n")
    second = replace(ground, compiled=lab.compiled_once(name, replace(PER_URL, version=2)))
    deploy.deploy_table(lab.connection, second.compiled)
    second.stream()

    judged = replace(lab.types["click"], reading=1)

    @contextmanager
    def opened(*_: object) -> Iterator[BatchContext]:
        yield replace(lab.context, event_types={**lab.types, "click": judged}, views=LoadedViews([second.compiled]))

    monkeypatch.setattr(event_registry, "begin_reading", lambda *_: judged)
    monkeypatch.setattr(rejudge, "open_batch", opened)
    done = rejudge.rejudge(lab.settings, "click", lambda _: None, "a test")
    assert (done.rebuilt, done.refused) == ([name, f"{name} version 1"], {})
    for compiled in (first, second.compiled):
        merge.require_reading(lab.connection, compiled, {"click": done.reading})
