"""The soak: mixed traffic, hostile records, changed declarations, a restored database, and kills of every process.

`TRUELOG_SOAK_SECONDS` says for how long. Then every view equals its raw bytes, by the command that operators use.
Each round does one step of harm under traffic, and waits until the platform has recovered. To add a step, add a
function to `STEPS`. `TRUELOG_SOAK_STEPS` chooses the steps whose names contain one of its words. `TRUELOG_SOAK_SEED`
chooses the traffic and the order of the points at which applications are killed.
"""

import logging
import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import runtime
from runtime import keeper
from tests import command
from tests.beds.world import World, known
from tests.command import answer, process_answer, truelog_process
from tests.deadline import deadline
from tests.nightly import soak_declarations as declarations
from tests.nightly.mixed_traffic import MixedTraffic
from tests.nightly.soak_followers import FOLLOWED, SUBSCRIBER_ROWS, Followers
from tests.nightly.soak_platform import POINTS, REPLAY_POINTS, SERVICES, STORES, Soak, applications, verdicts
from tests.scenes.backup import back_up, restore
from tests.scenes.declared import copy_events
from truelog.support.settings import PROJECT
from truelog.views import catalogue
from truelog.views.catalogue import VIEWS

SECONDS = float(os.environ.get("TRUELOG_SOAK_SECONDS", "1200"))
SEED = int(os.environ.get("TRUELOG_SOAK_SEED", "1"))
CHOSEN = os.environ.get("TRUELOG_SOAK_STEPS", "").split()
RULES = ("payments_from_another_country", "fall_after_rise")

log = logging.getLogger("truelog.soak")
pytestmark = [pytest.mark.own_servers, pytest.mark.timeout(deadline(SECONDS + 3_600))]


def send_hostile_records(soak: Soak) -> None:
    soak.traffic.send_hostile()


def declare(soak: Soak) -> None:
    soak.declare()


def watch(soak: Soak) -> None:
    """End the rules and the search of the last time, and set them again. The last comparison covers what they find."""
    if soak.watches:
        for words in (*(("patterns", "retire", rule) for rule in RULES), ("searches", "retire", "liked")):
            assert answer(*words)["in_log"]
    for rule in RULES:
        assert answer("patterns", "add", str(PROJECT / "include" / "rules" / f"{rule}.rule"))["in_log"]
    assert answer("searches", "add", "liked", "(I like) NOT bike*", "--on", "tweet")["in_log"]
    soak.watches = True


def rejudge(soak: Soak) -> None:
    """Judge all page views by the newest version. The first command is killed, and the second completes it."""
    fired = soak.settings.home / f"rejudge-{soak.version}-{time.monotonic_ns()}.fired"
    fault = {"TRUELOG_FAULT": "rejudge.before_commit:2:kill", "TRUELOG_FAULT_FIRED": str(fired)}
    truelog_process("events", "rejudge", "page_view", **fault)
    soak.kills["rejudge"] += fired.exists()
    assert fired.exists()
    process_answer("events", "rejudge", "page_view")


def restore_database(soak: Soak) -> None:
    """Replace the database by a backup. Since the backup, declarations have changed and dead letters were replayed."""
    backup = soak.settings.home / f"{time.monotonic_ns()}.dump"
    back_up(soak.settings, backup)
    soak.declare()
    soak.replay()
    soak.catch_up()
    for service in SERVICES:
        keeper.stop(soak.settings, service)
    soak.die()
    restore(soak.settings, backup)
    answer("archive", "adopt")
    runtime.up(soak.settings, [*STORES, *SERVICES], tethered=True)
    soak.keep_running()
    for view in FOLLOWED:
        process_answer("output", "resync", view)  # the topics have rows that the backup lacks
    soak.replay()


def kill_services(*names: str) -> Callable[[Soak], None]:
    return lambda soak: soak.kill_services(*names)


STEPS: tuple[tuple[str, Callable[[Soak], None]], ...] = (
    ("set rules and a search", watch),
    ("hostile records", send_hostile_records),
    ("declare a field and an event type", declare),
    ("kill the applications", Soak.kill_applications),
    ("restore the database", restore_database),
    ("kill the supervisor", Soak.kill_supervisor),
    ("kill the applications", Soak.kill_applications),
    ("kill PostgreSQL", kill_services("postgresql")),
    ("kill the applications", Soak.kill_applications),
    ("kill the relay and the API", kill_services("relay", "api")),
    ("kill Kafka", kill_services("kafka")),
    ("declare another version", declare),
    ("replay dead letters", Soak.replay),
    ("kill the applications", Soak.kill_applications),
    ("judge page views again", rejudge),
    ("kill S3", kill_services("s3")),
    ("kill the applications", Soak.kill_applications),
    ("kill the ticks, the collector and the lag service", kill_services(*SERVICES)),
    ("kill the applications", Soak.kill_applications),
)


@pytest.fixture
def soak(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Soak]:
    monkeypatch.setattr(command, "TIMEOUT_SECONDS", 1_200)
    folder = tmp_path / "views"
    shutil.copytree(VIEWS, folder, ignore=shutil.ignore_patterns("__pycache__"))
    declarations.declare_counts(folder)
    spread = applications(catalogue.load_all_views(folder))
    with known(
        world.settings,
        events_folder=copy_events(tmp_path),
        views_folder=folder,
        applications=spread,
        api_subscriber_rows=SUBSCRIBER_ROWS,
    ) as settings:
        runtime.up(settings, SERVICES, tethered=True)
        followers = Followers(settings, world)
        made = Soak(settings, world, MixedTraffic(settings, SEED), random.Random(SEED), followers)
        made.keep_running()
        yield made
        made.die()
        followers.end()


def test_every_view_equals_its_raw_bytes_after_the_soak(soak: Soak) -> None:
    steps = [each for each in STEPS if not CHOSEN or any(word in each[0] for word in CHOSEN)]
    began, rounds = time.monotonic(), Counter[str]()
    while rounds.total() < len(steps) or time.monotonic() - began < SECONDS:
        name, step = steps[rounds.total() % len(steps)]
        log.warning("%.0f s: %s, %d records acknowledged", time.monotonic() - began, name, soak.traffic.acknowledged)
        with soak.traffic.flowing():
            step(soak)
        soak.catch_up()
        soak.require_counts()
        soak.require_followers()
        rounds[name] += 1
    if soak.version:
        soak.replay()
        soak.catch_up()
        soak.require_each_parcel_once()
    soak.end()
    log.warning("%.0f s: reconcile", time.monotonic() - began)
    from_raw = verdicts("--from-raw")
    log.warning("%.0f s: from raw: %s", time.monotonic() - began, from_raw)
    from_columns = verdicts()
    log.warning("%.0f s: from typed columns: %s", time.monotonic() - began, from_columns)
    log.warning("%d rounds: %s", rounds.total(), dict(rounds))
    log.warning("acknowledged: %s; aborted: %d", dict(soak.traffic.sent), soak.traffic.aborted)
    log.warning("%d kills: %s", soak.kills.total(), dict(soak.kills))
    assert set(from_raw.values()) == {"EQUAL"} == set(from_columns.values())
    assert len(from_raw) == len(list(soak.settings.views_folder.glob("*.py")))
    killed = {point for name in POINTS for point in POINTS[name] if soak.kills[f"{name} at {point}"]}
    assert CHOSEN or any(soak.kills[f"replay at {point}"] for point in REPLAY_POINTS), "no replay was killed"
    assert CHOSEN or killed == {point for each in POINTS.values() for point in each}
