"""Which views go on after partitions were added to their topic, and what a release says about the views."""

from typing import Any, cast

import pytest

from tests.beds.archived import PER_URL, new_archive
from tests.beds.lab import Lab
from tests.builders.applications import forget_application
from tests.builders.views import a_view, forget
from tests.library.click_views import ABOVE, ONCE
from truelog.control import lease
from truelog.control.lease import Holder
from truelog.log.positions import Positions
from truelog.storage import audit_trail
from truelog.storage.database import connect
from truelog.streaming.view_deployment import ViewDeployment
from truelog.support.settings import Settings
from truelog.views.view import View


def reason(lab: Lab, s3: Settings, view: View, partitions: int) -> str:
    """Why the view cannot go on once its topic has so many partitions. It has read two of them."""
    ground = new_archive(lab, s3, view)
    ground.click(0, [("a", "1", 0)])
    ground.stream()
    earliest = Positions({"click": dict.fromkeys(range(partitions), 0)}, ground.ids)
    deployment = ViewDeployment(lab.settings, lab.spark, lab.connection, Holder("stream", 1), "")
    return deployment._grown(ground.compiled, earliest)


@pytest.mark.parametrize("view", [ABOVE, ONCE])
def test_a_view_is_refused_after_partitions_were_added(lab: Lab, s3: Settings, view: View) -> None:
    assert reason(lab, s3, view, 2) == ""
    assert "partitions were added to click" in reason(lab, s3, view, 3)


def test_a_view_that_depends_on_no_earlier_event_goes_on(lab: Lab, s3: Settings) -> None:
    assert reason(lab, s3, PER_URL, 3) == ""


def test_a_release_names_the_views_whose_files_have_changed(postgresql: Settings) -> None:
    views = "of_a_release", "of_each_release"
    with connect(postgresql, autocommit=True) as connection:
        for view in views:
            a_view(connection, view)
        held = lease.take_lease(postgresql, "released")
        deployment = ViewDeployment(postgresql, cast(Any, None), connection, held.holder, "")
        for code, file in (("a", "1"), ("b", "2"), ("c", "2")):
            deployment._record_release(code, "digest", {(views[0], 1): file, (views[1], 1): "the same"})
        releases = [each for each in audit_trail.latest_operations(connection, 9) if each.subject == "released"]
        held.release()
        forget_application(connection, "released")
        forget(connection, *views)
    assert [each.about for each in releases] == [
        "b became c; no view's file has changed",
        "a became b; changed: of_a_release",
    ]
