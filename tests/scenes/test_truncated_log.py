"""Kafka loses the end of its log and is refilled past the readers. No acknowledged record is skipped."""

import pytest

from tests.beds.world import World
from tests.command import answer, truelog
from tests.deadline import until
from tests.library.kafka_cut import lose_end_of_logs
from tests.scenes.applications import Application, start
from tests.scenes.archive_contents import in_the_archive
from tests.scenes.batch import Batch
from tests.scenes.traffic import Traffic, count_valid
from truelog.archive.audit_evidence import run_audit
from truelog.archive.table import archived_positions
from truelog.control.topic_status import suspended_topics
from truelog.lag import poll as lag_poll
from truelog.lag.verdict import LagVerdict, Limits, assess
from truelog.log import topics
from truelog.storage.database import connect

# Afterwards the log contains records twice, so no scene that counts its records may follow.
pytestmark = [pytest.mark.own_servers, pytest.mark.nightly]

TOPIC, VIEW, PARTITION = "page_view", "page_views", 0


def end(world: World) -> int:
    return topics.end_offsets(world.settings, [TOPIC]).at(TOPIC, PARTITION)


def require_end(world: World, expected: int) -> None:
    assert end(world) == expected


def refill(world: World, beyond: int) -> Traffic:
    """Send page views until the log is longer than before."""
    traffic = Traffic(world.settings, seed=2)
    while end(world) <= beyond:
        traffic.send(100)
    return traffic


def archive(world: World) -> Application:
    return start(world.settings, "archive.py", TRUELOG_ARCHIVE_TRIGGER_SECONDS="0.5")


def caught_up(world: World, archiver: Application, stream: Application) -> None:
    ends = topics.end_offsets(world.settings, [TOPIC])
    world.catch_up(stream, VIEW)
    archiver.wait(lambda: archived_positions(world.settings, [TOPIC]).covers(ends), 90, "the archive to catch up")


def reason(world: World) -> str:
    """Why the view is stalled, and why the archive has suspended the topic; empty until both are known."""
    stalled = world.ask("SELECT reason FROM truelog.standing WHERE view = %s AND state = 'STALLED'", VIEW)
    with connect(world.settings) as connection:
        suspended = [each.reason for each in suspended_topics(connection) if each.topic == TOPIC]
    return f"{stalled[0][0]} {suspended[0]}" if stalled and suspended else ""


def name_lost(world: World, cut_at: int, read: int) -> bool:
    """Whether the view and the archive both name the lost records."""
    return reason(world).count(f"Kafka has lost the records [{cut_at}, {read})") == 2


def both_run(world: World) -> bool:
    return world.ask("SELECT count(*) FROM truelog.application_status WHERE alive") == [(2,)]


def both_found(world: World, traffic: Traffic, cut_at: int, read: int) -> bool:
    """Whether both applications run and name the lost records.

    If Kafka did not say clearly what it has lost, a view asks again with the next batch, for which a record must come.
    """
    if both_run(world) and name_lost(world, cut_at, read):
        return True
    traffic.send(1)
    return False


def verdicts(world: World) -> set[LagVerdict]:
    """The verdicts of the view and the archive in the partition that was cut."""
    broker, found = topics.client(world.settings), set()
    for readers in (lag_poll.polled_views, lag_poll.polled_archive):
        _, polls = lag_poll.poll_once(world.settings, broker, [TOPIC], readers)
        samples = [poll.samples[TOPIC, PARTITION] for poll in polls if (TOPIC, PARTITION) in poll.samples]
        found |= {assess([sample], sample.at, Limits()).verdict for sample in samples}
    return found


def require_only_its_views_suspended(world: World, cut_at: int, read: int) -> None:
    """While the log is still shorter than the positions, the applications go on without it."""
    archiver, stream = archive(world), start(world.settings, "stream.py")
    stream.wait(lambda: name_lost(world, cut_at, read), 90, "the view and the archive to find the cut")
    stream.wait(lambda: "follows ticks from" in stream.log.read_text(), 60, "the stream to go on with the rest")
    assert (stream.end(), archiver.end()) == (0, 0)


def test_a_log_that_was_cut_and_refilled_is_not_skipped(
    world: World, no_archive: None, one_view: None, batch: Batch
) -> None:
    archiver, stream = archive(world), start(world.settings, "stream.py")
    world.traffic.send(1_000)
    caught_up(world, archiver, stream)
    assert (stream.end(), archiver.end()) == (0, 0)
    before, read = len(in_the_archive(world, TOPIC)), end(world)

    cut_at = lose_end_of_logs(world.settings, [TOPIC], PARTITION)[TOPIC]
    world.traffic.reconnect()
    until(lambda: require_end(world, cut_at), 30, "the leaders of the restarted broker")
    assert cut_at < read
    require_only_its_views_suspended(world, cut_at, read)
    traffic = refill(world, read)

    archiver, stream = archive(world), start(world.settings, "stream.py")
    stream.wait(lambda: f"{VIEW} is stalled" in stream.log.read_text(), 90, "the view to find the cut")
    stream.wait(lambda: both_found(world, traffic, cut_at, read), 60, "the archive and the reasons")
    assert world.positions(VIEW).at(TOPIC, PARTITION) == read
    assert verdicts(world) == {LagVerdict.REWIND}
    refused = truelog("archive", "accept-cut")
    assert "is already running" in refused.stderr
    assert (stream.end(), archiver.end()) == (0, 0)

    [accepted] = answer("archive", "accept-cut")["accepted"]
    assert (accepted["cut_at"], accepted["trusted_from"], accepted["lost"]) == (cut_at, read, 0)
    assert accepted["moved"] == read - cut_at
    assert answer("archive", "accept-cut") == {"accepted": []}

    archiver, stream = archive(world), start(world.settings, "stream.py")
    caught_up(world, archiver, stream)
    assert (stream.end(), archiver.end()) == (0, 0)
    archived = in_the_archive(world, TOPIC)
    assert len(archived) == before + traffic.acknowledged  # every acknowledged record, exactly once
    assert world.counted(VIEW) == count_valid([value for _, _, value, _ in archived.values()])
    batch.require_equal_from_raw([VIEW])
    report = run_audit(world.settings, deep=True)
    assert report.verdict == "SOUND", report.faults
