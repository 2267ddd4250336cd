"""Which versions the DAG `cut_over` has work for, who moves the readers when one is proved, and what a build stores."""

from datetime import timedelta
from unittest.mock import Mock

import pytest

from tests.beds.archived import PER_URL, Archived
from tests.library.versions.two_versions import TwoVersions
from truelog.archive.commit import Append, commit
from truelog.archive.table import open_catalog
from truelog.batch.batch_context import BatchContext
from truelog.kernel import merge
from truelog.log.positions import Positions
from truelog.support.errors import NotReady
from truelog.support.setting_groups.versions import CutOver
from truelog.versions import build
from truelog.versions.build import Built, build_version, fill, views_due
from truelog.versions.cut_over import back, cut_over
from truelog.versions.share import share


def is_due(versions: TwoVersions, whose: CutOver) -> bool:
    return versions.name in views_due(versions.settings.model_copy(update={"cut_over": whose}))


def built(versions: TwoVersions, *, moves: bool) -> Built:
    """Do what is left for version 2. It is filled and proved, so nothing needs Spark."""
    context = BatchContext(Mock(), versions.settings, Mock())
    return build_version(context, versions.second, lambda _: None, moves=moves, doer="test")


def test_readers_of_a_proved_version_are_moved_unless_cut_over_is_manual(versions: TwoVersions) -> None:
    assert not is_due(versions, CutOver.AUTOMATIC), "no application has deployed version 2"
    versions.run_both()
    assert is_due(versions, CutOver.MANUAL), "version 2 must be built"
    versions.make_ready()
    assert (is_due(versions, CutOver.AUTOMATIC), is_due(versions, CutOver.MANUAL)) == (True, False)

    assert built(versions, moves=False) == Built(versions.name, 2, verdict="EQUAL")
    assert versions.seen() == [("a", 1)]
    assert built(versions, moves=True) == Built(versions.name, 2, verdict="EQUAL", moved=True)
    assert versions.seen() == [("a", 2)]
    assert not is_due(versions, CutOver.AUTOMATIC)
    assert built(versions, moves=True).reason == "readers see it already"


def test_a_version_that_readers_left_is_not_shown_again_by_itself(versions: TwoVersions) -> None:
    versions.make_ready()
    cut_over(versions.settings, versions.name, doer="test")
    back(versions.settings, versions.name, doer="test")
    assert not is_due(versions, CutOver.AUTOMATIC)
    assert "only on request" in built(versions, moves=True).reason
    assert versions.seen() == [("a", 1)]


def test_the_dag_moves_nobody_while_a_share_of_the_readers_has_the_version(versions: TwoVersions) -> None:
    versions.make_ready()
    share(versions.settings, versions.name, 2, 10, doer="test")
    assert not is_due(versions, CutOver.AUTOMATIC)
    assert "a share of the readers gets it" in built(versions, moves=True).reason
    assert versions.seen() == [("a", 1)]
    share(versions.settings, versions.name, 2, 0, doer="test")
    assert built(versions, moves=True).moved


def test_a_comparison_before_the_version_was_built_proves_nothing(versions: TwoVersions) -> None:
    """The hourly comparison found that an empty version equals a rebuild of nothing."""
    versions.run_both()
    versions.prove(2, offset=0)
    versions.store(2, [("a", 2)])
    versions.reach(2, 5)
    assert is_due(versions, CutOver.MANUAL)
    with pytest.raises(NotReady, match="never compared"):
        cut_over(versions.settings, versions.name, doer="test")
    versions.prove(2)
    assert cut_over(versions.settings, versions.name, doer="test").version == 2


def test_an_error_is_the_reason_and_a_version_that_is_not_ready_has_not_failed(versions: TwoVersions) -> None:
    """Spark's errors are of any class. They must not stop the build of the views after this one."""

    def failing(_: str) -> None:
        raise RuntimeError("the job was aborted")

    versions.run_both()
    context = BatchContext(Mock(), versions.settings.model_copy(update={"archive_wait_seconds": 0.1}), Mock())
    found = build_version(context, versions.second, failing, moves=True, doer="test")
    assert found == Built(versions.name, 2, reason="RuntimeError: the job was aborted", failed=True)
    versions.reach(2, 3)
    waits = build_version(context, versions.second, lambda _: None, moves=True, doer="test")
    assert "still lacks 2 records" in waits.reason
    assert not waits.failed


@pytest.mark.parametrize("verdict", ["DIFFERENT", "EQUAL"])
def test_an_old_comparison_proves_nothing(versions: TwoVersions, verdict: str) -> None:
    versions.make_ready()
    versions.prove(2, verdict)
    assert not is_due(versions, CutOver.MANUAL)
    versions.prove(2, verdict, ago=timedelta(hours=2))
    assert is_due(versions, CutOver.MANUAL)


@pytest.mark.ground(view=PER_URL)
def test_a_version_waits_for_the_first_archived_record(ground: Archived, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "archived_reach", lambda *_: (Positions(), {}))
    with pytest.raises(NotReady, match="the archive contains no record of the topics"):
        fill(ground.rebuilder)


@pytest.mark.ground(view=PER_URL)
def test_a_built_version_has_the_epochs_of_the_archive(ground: Archived) -> None:
    """Without them, its first merge could not notice that the log was cut since."""
    ground.click(0, [("a", "5", 1)])
    ground.tick(20)
    ends = ground.ends["click"]
    with open_catalog(ground.lab.settings) as catalog:
        commit(catalog, Append("click", ground.ids["click"], ends, ends, {}, (), epochs={0: 7}))
    fill(ground.rebuilder)
    assert merge.leader_epochs(ground.lab.connection, ground.compiled) == {("click", 0): 7}
