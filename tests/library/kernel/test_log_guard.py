"""The guard of a batch: one proof for all views, or none."""

from typing import Any

import pytest

from truelog.kernel.log_guard import LogGuard
from truelog.log.leader_epochs import Epochs, require_same
from truelog.log.positions import Positions
from truelog.support.errors import TruelogError

READ = Positions({"click": {0: 5}}, {"click": "one"})


class Now:
    """The log as it is now."""

    def __init__(self, ids: dict[str, str], epochs: Epochs) -> None:
        self.ids, self.epochs = ids, epochs

    def require_unchanged(self, read: Positions) -> None:
        read.require_same_topics(Positions(ids=self.ids))

    def require_same_leaders(self, taken: Epochs, read: Positions) -> None:
        require_same(taken, self.epochs)


@pytest.mark.parametrize(
    ("topic_id", "epoch", "taken", "proved"),
    [
        ("one", 3, {("click", 0): 3}, True),
        ("two", 3, {("click", 0): 3}, False),  # the topic was created again
        ("one", 4, {("click", 0): 3}, False),  # the leader has changed
        ("one", 3, None, False),  # Kafka did not answer before the batch was read
    ],
)
def test_a_batch_is_proved_if_nothing_has_changed(topic_id: str, epoch: int, taken: Any, proved: bool) -> None:
    now: Any = Now({"click": topic_id}, {("click", 0): epoch})
    assert LogGuard(now).is_proved(taken, READ) is proved
    if taken and not proved:
        with pytest.raises(TruelogError):  # a view finds out by itself
            LogGuard(now).after(taken, READ)
