"""A topic that the archive has never read is behind from its beginning: the verdict and the alert say the same."""

import time
from dataclasses import replace

import pytest

from tests.builders.applications import last_batch
from tests.library.alert_tables import emptied
from tests.library.judged import judged
from tests.scenes.traffic import Traffic
from truelog.alerts.sources import lag as alert_lag
from truelog.control import application, lease
from truelog.control.application import ARCHIVE
from truelog.lag import history as lag_history
from truelog.lag import poll as lag_poll
from truelog.lag.history import ReaderPoll
from truelog.lag.verdict import LagVerdict
from truelog.log import topics
from truelog.support.settings import Settings

TOPIC, POLLS, APART = "page_view", 20, 10.0  # seconds


def at(poll: ReaderPoll, moment: float, age: float, *, batch: bool) -> ReaderPoll:
    """The poll at this moment, when the records were of this age.

    The archive has just finished a batch of other topics, or has finished none since the records came.
    """
    batch_at = moment if batch else moment - age
    samples = {
        place: replace(each, at=moment, batch_at=batch_at, seconds=age if each.events else 0.0)
        for place, each in poll.samples.items()
    }
    return replace(poll, at=moment, batch_at=batch_at, samples=samples)


@pytest.mark.parametrize("verdict", [LagVerdict.STALL, LagVerdict.STOP])
def test_a_topic_without_archive_is_unread_from_its_beginning(platform: Settings, verdict: LagVerdict) -> None:
    Traffic(platform).send(20)
    _, [poll] = lag_poll.poll_once(platform, topics.client(platform), [TOPIC], lag_poll.polled_archive)
    assert {(each.position, each.events) for each in poll.samples.values() if each.events} == {
        (each.earliest, each.end - each.earliest) for each in poll.samples.values() if each.events
    }
    now, makes_batches = time.time(), verdict is LagVerdict.STALL
    ages = [APART * number for number in range(POLLS)]
    history = [at(poll, now - ages[-1] + age, age, batch=makes_batches) for age in ages]
    with emptied(platform, "lag_sample", "lease", "application", "alert") as connection:
        held = lease.take_lease(platform, ARCHIVE)
        application.declare(connection, [ARCHIVE])
        last_batch(connection, ARCHIVE)
        lag_history.append(connection, judged(platform, history), 3600)
        observation = alert_lag.observe(platform)
        held.release()
    judgements = judged(platform, history)[-1].assessments
    assert {judgements[place].verdict for place, each in poll.samples.items() if each.events} == {verdict}
    [finding] = [each for each in observation.findings if each.kind != "lag_unknown"]  # views have no samples
    assert finding.key == f"stalled/{ARCHIVE}"
    assert finding.cause.startswith(f"{ARCHIVE} {TOPIC} ")
