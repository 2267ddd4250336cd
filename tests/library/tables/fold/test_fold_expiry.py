"""A Group with `keep`: the inputs, checkpoints and rows of a group expire in one merge."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from psycopg import sql

from tests.beds.archived import Archived
from tests.library.tables.fold.spent import HUGE, IN_STEPS
from truelog.reconcile import certificate_store, certificate_verifier
from truelog.reconcile.comparison.compare import compare
from truelog.reconcile.reconcile import reconcile
from truelog.support.errors import TooManyExcluded
from truelog.tables.compiled_view import CompiledView
from truelog.tables.fold import failing, merge
from truelog.tables.stage import StagedRows

HOUR = 3600
BEGINNING = datetime(1, 1, 1, tzinfo=UTC)


def two_minutes(ground: Archived) -> None:
    ground.click(0, [("a", "1", 0), ("a", "2", 1), ("a", "4", 50 * 60), ("a", "8", 50 * 60)])
    ground.stream()


pytestmark = pytest.mark.ground(view=replace(IN_STEPS, keep="1 hour"), filled=two_minutes)


def rows(ground: Archived) -> list[tuple[object, ...]]:
    """By table: how many rows it has, and how many of the first minute."""
    found = list[tuple[object, ...]]()
    for each in ground.compiled.tables:
        query = sql.SQL("SELECT count(*), count(*) FILTER (WHERE date_part('minute', minute) = 0) FROM {}")
        found += ground.lab.connection.execute(query.format(sql.Identifier("state", each.name))).fetchall()
    return found


def require_equal(ground: Archived) -> None:
    assert compare(ground.rebuilder).verdict == "EQUAL"
    assert compare(replace(ground.rebuilder, from_raw=True)).verdict == "EQUAL"


def test_a_group_expires_with_all_its_inputs(ground: Archived) -> None:
    assert rows(ground) == [(2, 1), (4, 2), (2, 1)]
    ground.tick(HOUR + 120)
    ground.stream()
    assert rows(ground) == [(1, 0), (2, 0), (1, 0)]
    require_equal(ground)


def test_an_event_of_an_expired_group_changes_nothing(ground: Archived) -> None:
    ground.tick(HOUR + 120)
    ground.stream()
    ground.click(1, [("a", "16", 2), ("a", "32", 50 * 60)])
    ground.stream()
    assert rows(ground) == [(1, 0), (3, 0), (1, 0)]
    query = sql.SQL("SELECT spent FROM {}").format(sql.Identifier("views", ground.compiled.name))
    assert ground.lab.connection.execute(query).fetchall() == [(44,)]
    require_equal(ground)


def failed(ground: Archived) -> list[str]:
    query = """SELECT "group" ->> 0 FROM truelog.failed_group WHERE view = %s ORDER BY 1"""
    return [str(url) for (url,) in ground.lab.connection.execute(query, (ground.compiled.name,)).fetchall()]


def fail(ground: Archived, seconds: int, *urls: str) -> None:
    """For each URL, two clicks in one minute on which the fold fails."""
    ground.click(0, [(url, HUGE, seconds) for url in urls for _ in range(2)])
    ground.stream()


def test_failing_groups_that_have_expired_do_not_count(ground: Archived, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failing, "MOST", 1)
    fail(ground, 0, "b")
    assert failed(ground) == ["b"]
    ground.tick(HOUR + 120)
    ground.stream()
    assert failed(ground) == []
    fail(ground, 51 * 60, "d")
    assert failed(ground) == ["d"]


@pytest.mark.nightly
def test_late_failing_groups_do_not_count_in_any_layer(ground: Archived, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failing, "MOST", 2)
    ground.tick(HOUR + 120)
    fail(ground, 51 * 60, "d", "e")
    fail(ground, 3, "f", "g", "h")  # their groups have expired
    assert failed(ground) == ["d", "e"]
    require_equal(ground)
    verify(ground)
    with pytest.raises(TooManyExcluded):
        fail(ground, 52 * 60, "i")


def verify(ground: Archived) -> None:
    context = ground.lab.context
    made = reconcile(context, ground.compiled).certificate
    assert made is not None
    certified = certificate_store.find_certificate(context.settings, made)
    verifier = certificate_verifier.CertificateVerifier(
        context.spark, context.settings, context.event_types, ground.compiled
    )
    assert verifier.verify(certified).answer == "EQUAL"


@pytest.mark.nightly
def test_a_plan_that_was_made_before_a_group_expired_goes_on_without_it(
    ground: Archived, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repeated plan knows the limit of the moment when it was made."""
    ground.tick(HOUR + 120)
    ground.stream()
    attempts, real = list[bool](), merge._stage_all

    def stage_all(compiled: CompiledView, *given: Any) -> StagedRows:
        attempts.append(len(attempts) == 0)
        return real(failing.without_expired(compiled, BEGINNING) if attempts[-1] else compiled, *given)

    monkeypatch.setattr(merge, "_stage_all", stage_all)
    fail(ground, 3, "b")
    assert (attempts, failed(ground)) == ([True, False], [])
    require_equal(ground)
