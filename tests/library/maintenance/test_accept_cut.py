"""`accept-cut` on a real log that was cut. Each record counts once, in each order of readers and after each crash."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message, Producer

from tests.builders.views import a_view, an_exclusion, merged_to
from tests.deadline import deadline, until
from tests.library.kafka_cut import lose_end_of_logs
from tests.nightly_cases import nightly_except
from truelog.archive.commit import Append, commit
from truelog.archive.table import Progress, ensure_table, identifier, open_catalog
from truelog.control import log_cuts
from truelog.log import leader_epochs, topics
from truelog.log.kafka_reader import messages
from truelog.log.leader_epochs import Epochs, find_cuts
from truelog.log.positions import Positions
from truelog.maintenance.accept_cut import AcceptedCut, accept_cuts
from truelog.schema.event import Event, EventType, Topic
from truelog.storage.database import connect
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings

pytestmark = pytest.mark.own_servers

OLD, CUT_AT = 10, 5  # records before the cut, and the offset at which the log is cut
STEPS = ("accept_cut.planned", "accept_cut.filled", "accept_cut.moved", "accept_cut.archived")


class Text(Event):
    """An event with a text."""

    what: str


@dataclass(frozen=True)
class Case:
    """Where each reader was when the log was cut, and how many records were sent since."""

    archived: int
    views: dict[str, int] = field(default_factory=dict)
    went_on: dict[str, int] = field(default_factory=dict)  # views that were before the cut, and went on in the new log
    new: int = 7
    compacted: bool = False
    result: tuple[int, int, int, tuple[str, ...]] = (0, 0, 0, ())  # trusted_from, moved, lost, views


OPEN = "open_transaction"
FILLED = Case(archived=7, views={"v": 10, "w": 6}, new=3, result=(10, 3, 3, ("v",)))
CASES = {
    "cut_archive": Case(archived=10, views={"v": 9, "w": 2}, result=(10, 5, 0, ())),
    "cut_view_ahead": FILLED,
    "cut_archive_behind": Case(archived=3, views={"v": 10, "w": 7}, new=3, result=(10, 0, 5, ("v", "w"))),
    "cut_never_archived": Case(archived=-1, views={"v": 8}, result=(8, 0, 3, ("v",))),
    "cut_view_went_on": Case(archived=7, views={"v": 6}, went_on={"w": 9}, result=(9, 4, 0, ("w",))),
    "cut_compacted": Case(archived=8, compacted=True, result=(12, 7, 0, ())),
    **{f"crash_{step.replace('.', '_')}": FILLED for step in STEPS},
    OPEN: Case(archived=10, views={"v": 9}, new=2, result=(10, 4, 0, ())),
    "cut_crash_went_on": replace(FILLED, new=9, result=(10, 5, 3, ("v",))),
}


@dataclass
class World:
    """The logs after the cut. `old` and `new` are the epochs before and after it."""

    settings: Settings
    old: Epochs
    new: Epochs
    ids: dict[str, str]

    def accept(self, topic: str) -> AcceptedCut:
        [accepted] = accept_cuts(self.settings, topic, lambda _: None)
        return accepted

    def progress(self, topic: str) -> Progress:
        with open_catalog(self.settings) as catalog:
            return Progress.of(catalog.load_table(identifier(topic)).metadata)

    def log(self, topic: str, begin: int) -> list[Message]:
        end = topics.end_offsets(self.settings, [topic]).at(topic, 0)
        return list(messages(self.settings, topic, 0, begin, end))

    def complete(self, topic: str, accepted: AcceptedCut) -> list[str]:
        """Every record that the archive contains, once it has read the log from where it goes on."""
        case = CASES[topic]
        past = case.archived > CUT_AT
        kept = [f"old {n}" for n in range(case.archived)] if past else []
        found = self.log(topic, accepted.trusted_from if past else 0)
        return sorted(kept + values(found))


def values(records: list[Message]) -> list[str]:
    """The records' values without fillers."""
    return [value.decode() for each in records if (value := each.value()) is not None]


def key_of(n: int) -> bytes:
    return f"k{n % 3}".encode()


def send(settings: Settings, topic: str, records: Iterator[int] | range, name: str) -> None:
    producer = Producer({**settings.kafka(), "acks": "all"})
    for n in records:
        producer.produce(topic, f"{name} {n}".encode(), key_of(n), partition=0)
        assert producer.flush(deadline(10)) == 0  # each record is a batch of its own


@pytest.fixture(scope="module")
def world(platform: Settings) -> World:
    types = {n: EventType(n, Text, Topic("what", (), 1, "7 days", compacted=c.compacted)) for n, c in CASES.items()}
    topics.sync_topics(platform, types)
    ids, broker = topics.topic_ids(platform, CASES), topics.client(platform)
    for topic in CASES:
        send(platform, topic, range(OLD), "old")
    old = topics.leader_epochs(broker, [(topic, 0) for topic in CASES])
    assert lose_end_of_logs(platform, CASES) == dict.fromkeys(CASES, CUT_AT)
    new = topics.leader_epochs(broker, [(topic, 0) for topic in CASES])
    made = World(platform, old, new, ids)
    for topic, case in CASES.items():
        send(platform, topic, range(case.new), "new")
        place_readers(made, topic, types[topic])
    return made


def place_readers(world: World, topic: str, event_type: EventType) -> None:
    """Store where the readers are, and the cuts that they find."""
    case, old, new = CASES[topic], world.old[topic, 0], world.new[topic, 0]
    if case.archived >= 0:
        with open_catalog(world.settings) as catalog:
            ensure_table(catalog, event_type, world.ids[topic], {0: 0})
            commit(catalog, Append(topic, world.ids[topic], {0: 0}, {0: case.archived}, {0: 0}, (), epochs={0: old}))
    at = [(view, position, old) for view, position in case.views.items()]
    at += [(view, position, new) for view, position in case.went_on.items()]
    with connect(world.settings) as connection:
        for view, position, epoch in at:
            a_view(connection, f"{topic} {view}")
            reached = Positions({topic: {0: position}}, {topic: world.ids[topic]})
            merged_to(connection, f"{topic} {view}", reached, leader_epoch=epoch)
            for offset in (CUT_AT - 1, CUT_AT):
                an_exclusion(connection, f"{topic} {view}", offset, topic=topic, topic_id=world.ids[topic])
        for position, epoch in {(position, epoch) for _, position, epoch in [*at, ("", case.archived, old)]}:
            reached = Positions({topic: {0: position}}, {topic: world.ids[topic]})
            cuts = list(find_cuts(world.settings, reached, {(topic, 0): epoch})) if position > CUT_AT else []
            assert bool(cuts) == (epoch == old and position > CUT_AT)
            log_cuts.record_cuts(connection, cuts, "a test")


def require(world: World, topic: str, accepted: AcceptedCut) -> None:
    case = CASES[topic]
    views = tuple(view.removeprefix(f"{topic} ") for view in accepted.views)
    assert (accepted.cut_at, accepted.trusted_from, accepted.moved, accepted.lost, views) == (CUT_AT, *case.result)
    kept = case.archived if case.archived > CUT_AT else CUT_AT
    sent = [*(f"old {n}" for n in range(kept)), *(f"new {n}" for n in range(case.new))]
    assert world.complete(topic, accepted) == sorted(sent)
    if case.archived >= 0:
        progress = world.progress(topic)
        past = case.archived > CUT_AT
        assert progress.positions[0] == (accepted.trusted_from if past else case.archived)
        assert progress.epochs[0] == (world.new if past else world.old)[topic, 0]
    with connect(world.settings) as connection:
        assert topic not in {each.topic for each in log_cuts.open_cuts(connection)}
        query = 'SELECT DISTINCT "offset" FROM truelog.exclusion WHERE topic_id = %s ORDER BY 1'
        excluded = [offset for (offset,) in connection.execute(query, (world.ids[topic],)).fetchall()]
    # Unless the lost records are archived, new records have their offsets now.
    lost = [] if case.archived <= CUT_AT else [CUT_AT]
    assert excluded == ([CUT_AT - 1, *lost] if case.views or case.went_on else [])
    assert accept_cuts(world.settings, topic, lambda _: None) == []


@pytest.mark.parametrize("topic", [name for name in CASES if "crash" not in name and name != OPEN])
def test_each_record_counts_once_in_each_order_of_the_readers(world: World, topic: str) -> None:
    require(world, topic, world.accept(topic))


def test_the_last_record_of_each_key_is_still_the_last_in_a_compacted_topic(world: World) -> None:
    """Depends on nothing but the log: the order of the keys' records is as it was sent."""
    topic = "cut_compacted"
    assert values(world.log(topic, CASES[topic].result[0])) == [f"new {n}" for n in range(CASES[topic].new)]


def kill(world: World, topic: str, step: str, fired: Path) -> None:
    fault: dict[str, Any] = {"TRUELOG_FAULT": f"{step}:1:kill", "TRUELOG_FAULT_FIRED": str(fired)}
    command = [str(Path(sys.executable).with_name("truelog")), "archive", "accept-cut", topic]
    ended = subprocess.run(command, env=os.environ | fault, capture_output=True, timeout=deadline(120), check=False)
    assert fired.exists(), ended.stderr
    assert ended.returncode == -9
    until(lambda: _require_free_leases(world.settings), 30, "PostgreSQL to end the killed process's sessions")


def _require_free_leases(settings: Settings) -> None:
    with connect(settings) as connection:
        [(held,)] = connection.execute(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' "
            "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        ).fetchall()
    if held:
        raise ServiceDown(f"{held} locks are held")


@pytest.mark.parametrize("step", nightly_except(["accept_cut.moved"], STEPS))
def test_killed_at_each_step_and_repeated(world: World, step: str, tmp_path: Path) -> None:
    topic = f"crash_{step.replace('.', '_')}"
    kill(world, topic, step, tmp_path / "fired")
    require(world, topic, world.accept(topic))


def test_killed_before_a_view_went_on_and_repeated(world: World, tmp_path: Path) -> None:
    """Between the two attempts, a view that was before the cut passes the offset that the first attempt chose."""
    topic = "cut_crash_went_on"
    kill(world, topic, "accept_cut.moved", tmp_path / "fired")
    with connect(world.settings) as connection:
        reached = Positions({topic: {0: 13}}, {topic: world.ids[topic]})
        merged_to(connection, f"{topic} w", reached, leader_epoch=world.new[topic, 0])
    require(world, topic, world.accept(topic))


def test_records_behind_an_open_transaction_are_not_lost(world: World) -> None:
    """Kafka shows them when the transaction has ended."""
    producer = Producer({**world.settings.kafka(), "transactional.id": OPEN})
    producer.init_transactions(deadline(20))
    producer.begin_transaction()
    producer.produce(OPEN, b"inside 0", b"k0", partition=0)
    assert producer.flush(deadline(10)) == 0
    send(world.settings, OPEN, range(1), "behind")
    with pytest.raises(ServiceDown, match=f"a transaction at {CUT_AT + 2} has not ended"):
        world.accept(OPEN)
    producer.commit_transaction(deadline(20))
    accepted = world.accept(OPEN)
    assert accepted.moved == 4
    sent = [*(f"old {n}" for n in range(OLD)), "new 0", "new 1", "inside 0", "behind 0"]
    assert world.complete(OPEN, accepted) == sorted(sent)


PROOF = f"at {CUT_AT}, before the position"


@pytest.mark.parametrize(
    ("position", "proof"), [(CUT_AT, ""), (CUT_AT + 1, PROOF), (OLD, PROOF), (40, "the log ends at .* the position 40")]
)
def test_the_records_prove_a_cut_about_which_the_client_is_silent(
    world: World, monkeypatch: pytest.MonkeyPatch, position: int, proof: str
) -> None:
    monkeypatch.setattr(leader_epochs, "_end_of_cut", lambda _: None)
    topic = "cut_archive"
    reached = Positions({topic: {0: position}}, {topic: world.ids[topic]})
    with pytest.raises(ServiceDown, match=proof) if proof else nullcontext():
        leader_epochs.require_intact(world.settings, reached, {(topic, 0): world.old[topic, 0]}, world.new)
