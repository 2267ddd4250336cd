"""Adding an event type to a running platform is one file, and a broken file stops nothing."""

import json
import re
import time
from collections.abc import Iterator

import pytest

from tests.beds.world import World
from tests.command import truelog, truelog_process
from tests.scenes.declared import EVENT
from tests.scenes.parcels import BY_PARCEL, NAME, Parcels, platform
from tests.speed import record_speed

pytestmark = pytest.mark.nightly

LONG = "a" * 70
ALERTS = "SELECT kind, subject FROM truelog.alert WHERE resolved_at IS NULL AND opened_at IS NOT NULL"


@pytest.fixture(scope="module")
def parcels(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parcels]:
    """Both applications are running, and no event type of parcels is declared."""
    with platform(world, tmp_path_factory.mktemp("parcels")) as made:
        made.start()
        epochs = made.epochs()
        yield made
        assert made.epochs() == epochs, "an application was restarted"
        made.end()


@pytest.fixture(scope="module")
def declared(parcels: Parcels) -> Parcels:
    """One file declares the event type and one file the view, which has counted the first event."""
    assert parcels.post("a", 1) == 422
    began = time.monotonic()
    parcels.declare()
    record_speed("from the file of an event type to the first row of its view", time.monotonic() - began)
    return parcels


@pytest.fixture(scope="module")
def changed(declared: Parcels) -> Parcels:
    """A second version accepts longer names and has another field. The first version has refused a long name."""
    declared.require_archived()  # no earlier test may have waited for the archive's table
    declared.append(LONG, 11)
    declared.file.write_text(EVENT.replace("=64", "=80") + "    depot: str | None = None\n")
    declared.soon(lambda: declared.has_column("depot"), "the new column in the archive")
    return declared


def broken(parcels: Parcels) -> list[str]:
    return [event for (event,) in parcels.world.ask("SELECT event FROM truelog.event_file")]


def test_a_new_event_type_is_one_file(declared: Parcels) -> None:
    """Its events are accepted, archived and counted."""
    counted = declared.grams()
    assert declared.post("first", 2) == 200
    declared.soon(lambda: declared.grams() == counted | {"first": 2}, "the view")
    declared.require_archived()
    assert declared.archived("parcel") >= {"a", "first"}


def test_a_broken_file_is_shown_and_the_last_version_remains_in_force(declared: Parcels) -> None:
    counted, intact = declared.grams(), declared.file.read_text()
    declared.file.write_text(re.sub(r"(max_length=\d+)\)", r"\1", intact))
    declared.soon(lambda: broken(declared) == [NAME], "the broken file")
    declared.soon(lambda: ("event_file_broken", NAME) in declared.world.ask(ALERTS), "the alert")
    shown = truelog("status")
    assert f"file {NAME}.py" in shown.stdout
    assert "never closed" in " ".join(shown.stdout.split())
    assert declared.post("while broken", 7) == 200
    declared.world.traffic.send(20)
    declared.soon(lambda: declared.grams() == counted | {"while broken": 7}, "the view")
    declared.soon(lambda: declared.world.caught_up("page_views"), "the other view")

    declared.file.write_text(intact)
    declared.soon(lambda: broken(declared) == [], "the mended file")
    declared.soon(lambda: ("event_file_broken", NAME) not in declared.world.ask(ALERTS), "the end of the alert")


def test_a_changed_file_is_a_new_version(changed: Parcels) -> None:
    counted = changed.grams()
    assert changed.post("b", 9, depot="north") == 200
    changed.soon(lambda: changed.grams() == counted | {"b": 9}, "the view")
    changed.require_archived()
    assert "north" in changed.archived("depot")


def test_a_new_version_can_judge_old_records_again(changed: Parcels) -> None:
    """The first version has refused the long name, and the second version accepts it."""
    counted = changed.grams()
    assert LONG not in counted
    ended = truelog_process("events", "rejudge", NAME, "--json")
    assert ended.returncode == 0, ended.stderr
    answer = {"event": NAME, "reading": 1, "version": 2, "rebuilt": [BY_PARCEL], "refused": {}}
    assert json.loads(ended.stdout) == answer
    begun = f"{NAME}: version 2 judges all records in reading 1"
    assert steps(ended.stderr) == [begun, f"{BY_PARCEL}: rebuilding", f"{BY_PARCEL}: rebuilt"]
    assert changed.grams() == counted | {LONG: 11}

    again = truelog_process("events", "rejudge", NAME)
    assert (again.returncode, again.stdout) == (0, ""), again.stderr
    assert steps(again.stderr) == [begun]

    assert changed.post("c", 13, depot="south") == 200
    changed.soon(lambda: changed.grams() == counted | {LONG: 11, "c": 13}, "the view in the new reading")
    changed.require_archived()


def steps(log: str) -> list[str]:
    return [line for line in log.splitlines() if line.startswith((NAME, BY_PARCEL))]
