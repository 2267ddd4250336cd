"""A recompute replaces a partial, and then nothing has compared the partial with the raw bytes."""

from dataclasses import replace
from typing import Any

import pytest

from tests.beds.archived import MORNING, PER_URL, Archived
from tests.builders.log import a_log_day
from truelog.batch import partials
from truelog.batch.recompute import recompute
from truelog.reconcile.partial_audit import audit_partials, oldest_proof
from truelog.tables import kinds, table_hash


def one_click(ground: Archived) -> None:
    ground.click(0, [("a", "1", 1)])
    ground.click(1, [("b", "2", 1)])


@pytest.fixture
def day(ground: Archived) -> Archived:
    """One closed log day."""
    begin, connection, topic_id = MORNING.timestamp(), ground.lab.connection, ground.ids["click"]
    for partition, end in ground.ends["click"].items():
        for second, first in ((begin, 0), (begin + ground.lab.settings.log_day_seconds, end)):
            a_log_day(connection, "click", second, topic_id=topic_id, partition=partition, first_offset=first)
    return ground


def proved(ground: Archived) -> bool:
    return oldest_proof(ground.rebuilder, ground.positions.only(["click"])) is not None


@pytest.mark.ground(view=replace(PER_URL, keep=None), filled=one_click)
def test_a_new_partial_is_not_proved_by_the_audit_of_the_former(day: Archived) -> None:
    recompute(day.lab.context, day.compiled, MORNING)
    assert audit_partials(day.rebuilder).days == [MORNING]
    assert proved(day)
    recompute(day.lab.context, day.compiled, MORNING)
    assert not proved(day)
    audit_partials(day.rebuilder)
    assert proved(day)


@pytest.mark.ground(view=replace(PER_URL, keep=None), filled=one_click)
@pytest.mark.parametrize("is_right", [True, False])
def test_a_partial_that_replaces_another_during_its_audit_is_not_proved(
    day: Archived, is_right: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    compare = table_hash.unequal_buckets

    def recomputed_meanwhile(*hashes: Any) -> Any:
        found = compare(*hashes)
        recompute(day.lab.context, day.compiled, MORNING)
        return found

    recompute(day.lab.context, day.compiled, MORNING)
    if not is_right:
        [known] = [day.rebuilder.partials(each) for each in kinds.daily(day.compiled)]
        [tile] = known.ranges
        half = day.rebuilder.states_between(known.table, tile.begin, tile.begin)
        partials.replace(day.lab.spark, day.lab.settings, known.table, tile, half)
    with monkeypatch.context() as patched:
        patched.setattr(table_hash, "unequal_buckets", recomputed_meanwhile)
        assert audit_partials(day.rebuilder).wrong == ([] if is_right else [MORNING])
    assert proved(day) is not is_right  # the audit has replaced the partial that differed once more
    assert audit_partials(day.rebuilder).wrong == []
    assert proved(day)
