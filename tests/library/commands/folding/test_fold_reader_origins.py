"""States whose history is judged again, or whose log was cut: no decision uses the former ones."""

import uuid
from collections.abc import Callable
from threading import Event as Flag

import pytest

from tests.deadline import deadline
from tests.library.commands.folding.parcels import (
    Lighter,
    commands_on,
    confirmed,
    declared,
    reading,
    register,
    send,
    sending,
    state_of,
)
from truelog.archive.commit import Append, commit
from truelog.archive.table import ensure_table, open_catalog
from truelog.commands.command_log import FoldChanged, decide_all
from truelog.commands.folding import fold_reader
from truelog.commands.folding.fold_positions import Reading, require_current, statuses
from truelog.commands.folding.states import KeyState
from truelog.control import event_registry, log_cuts
from truelog.log import topics
from truelog.log.leader_epochs import Cut
from truelog.storage.database import Connection, connect
from truelog.support.settings import Settings


def judge_again(settings: Settings, topic: str) -> None:
    event_registry.register(settings, declared(topic, Lighter))
    event_registry.begin_reading(settings, topic)


def accept_cut(settings: Settings, topic: str) -> None:
    """The archive has no record at the first offset, where the log has another one since the cut."""
    ends = topics.end_offsets(settings, [topic])
    end, topic_id = ends.at(topic, 0), ends.ids[topic]
    with open_catalog(settings) as catalog:
        ensure_table(catalog, declared(topic), topic_id, {0: 0})
        commit(catalog, Append(topic, topic_id, {0: 0}, {0: end}, {0: 0}, ()))
    with connect(settings, autocommit=True) as connection:
        log_cuts.record_cuts(connection, [Cut(topic, topic_id, 0, 0, end, 0)], "a test")
        [cut] = [each for each in log_cuts.open_cuts(connection) if each.topic == topic]
        log_cuts.accept(connection, cut, end, "a test")


@pytest.mark.parametrize("change", [judge_again, accept_cut])
def test_no_decision_uses_states_of_a_former_origin(
    platform: Settings, monkeypatch: pytest.MonkeyPatch, change: Callable[[Settings, str], None]
) -> None:
    """Even if no reader runs. The confirmation that the reader's next states need excludes the former ones."""
    parcel = register(platform, f"parcel_{uuid.uuid4().hex[:8]}")
    commands = commands_on(parcel)
    send(platform, parcel, "p1", parcel_id="p1", weight=50)
    with reading(platform, commands, monkeypatch):
        generations = confirmed(platform, commands, parcel).generations
    assert state_of(platform, parcel, "p1") == KeyState({"weight": 50}, 1)
    change(platform, parcel)
    with connect(platform, autocommit=True) as connection:
        types = event_registry.load_types(connection)
        with pytest.raises(FoldChanged, match=parcel):
            decide_all(connection, commands, types, generations, [sending(commands)])
        assert parcel not in statuses(connection)
    with reading(platform, commands, monkeypatch):
        confirmed(platform, commands, parcel)
        assert state_of(platform, parcel, "p1") == KeyState({}, 0)
        send(platform, parcel, "p1", parcel_id="p1", weight=7)
        confirmed(platform, commands, parcel)
        assert state_of(platform, parcel, "p1") == KeyState({"weight": 7}, 1)


def test_a_running_reader_and_a_session_follow_a_rejudge_of_a_quiet_log(
    platform: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    parcel, is_idle = register(platform, f"parcel_{uuid.uuid4().hex[:8]}"), Flag()
    commands = commands_on(parcel)

    def look(connection: Connection, event: str, at: Reading) -> None:
        require_current(connection, event, at)
        if event == parcel and at.offsets == {0: 1}:
            is_idle.set()

    monkeypatch.setattr(fold_reader, "require_current", look)
    send(platform, parcel, "p1", parcel_id="p1", weight=50)
    with reading(platform, commands, monkeypatch):
        before = confirmed(platform, commands, parcel).generations[parcel]
        assert is_idle.wait(deadline(30))
        judge_again(platform, parcel)
        after = confirmed(platform, commands, parcel).generations[parcel]
        assert (after != before, state_of(platform, parcel, "p1")) == (True, KeyState({}, 0))
