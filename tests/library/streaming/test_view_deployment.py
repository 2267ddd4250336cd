"""A view that depends on earlier events does not go on if its topic has got more partitions; any other view does."""

import pytest

from tests.beds.archived import PER_URL, new_archive
from tests.beds.lab import Lab
from tests.library.click_views import ABOVE, ONCE
from truelog.control.lease import Holder
from truelog.log.positions import Positions
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
