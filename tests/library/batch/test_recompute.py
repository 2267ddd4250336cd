"""A recompute replaces a partial, and then nothing has compared the partial with the raw bytes."""

from dataclasses import replace

import pytest

from tests.beds.archived import MORNING, PER_URL, Archived
from tests.builders.log import a_log_day
from truelog.batch.recompute import recompute
from truelog.reconcile.partial_audit import audit_partials, oldest_proof


def one_click(ground: Archived) -> None:
    ground.click(0, [("a", "1", 1)])
    ground.click(1, [("b", "2", 1)])


@pytest.mark.ground(view=replace(PER_URL, keep=None), filled=one_click)
def test_a_new_partial_is_not_proved_by_the_audit_of_the_former(ground: Archived) -> None:
    begin, connection = MORNING.timestamp(), ground.lab.connection
    for partition, end in ground.ends["click"].items():
        for day, first in ((begin, 0), (begin + ground.lab.settings.log_day_seconds, end)):
            a_log_day(connection, "click", day, topic_id=ground.ids["click"], partition=partition, first_offset=first)
    positions = ground.positions.only(["click"])
    recompute(ground.lab.context, ground.compiled, MORNING)
    assert audit_partials(ground.rebuilder).days == [MORNING]
    assert oldest_proof(ground.rebuilder, positions) is not None
    recompute(ground.lab.context, ground.compiled, MORNING)
    assert oldest_proof(ground.rebuilder, positions) is None
    audit_partials(ground.rebuilder)
    assert oldest_proof(ground.rebuilder, positions) is not None
