"""A platform of an earlier release is upgraded in place, as docs/production.md says.

Every stored row is kept, the certificates are answered by the present verifier, and the streams go on where they were.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import runtime
from tests.beds.world import World
from tests.chosen_views import copy_views
from tests.command import answer, shared_spark
from tests.library.stored_rows import Rows, require_kept, rows_of
from tests.scenes import earlier_release
from tests.scenes.applications import start
from tests.scenes.backup import load
from tests.scenes.batch import Batch
from tests.scenes.traffic import count_valid, messages_in_the_log
from tests.servers import Environment, OwnServers, SharedServers
from truelog.log import topics
from truelog.log.positions import Positions
from truelog.storage.database import connect
from truelog.support.settings import Settings
from truelog.views import catalogue

pytestmark = [pytest.mark.nightly, pytest.mark.own_servers]

# The release's version of each view. The present release declares a later version of `sessions`.
VERSIONS = {"page_audience": 2, "page_views": 2, "request_rates": 1, "sessions": 1}
NEWER = "sessions"
SAME = sorted(VERSIONS.keys() - {NEWER})
SCHEMAS = ("truelog", "state", "iceberg")


@pytest.fixture(scope="module")
def environment(servers: SharedServers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    made = OwnServers(earlier_release.unpacked())
    views = copy_views(tmp_path_factory.mktemp("views"), *VERSIONS)
    with mock.patch.dict(os.environ, TRUELOG_HOME=str(made.settings.home), TRUELOG_VIEWS_FOLDER=str(views)):
        try:
            yield made
        finally:
            made.end()


@pytest.fixture(scope="module")
def stored(environment: Environment) -> dict[str, Rows]:
    """The rows of the earlier release, from before the database was migrated."""
    settings = environment.provide("postgresql")
    load(settings, settings.home / earlier_release.DUMP)
    before = all_rows(settings)
    runtime.up(settings, ["postgresql"], tethered=True)
    return before


@pytest.fixture(scope="module")
def archived(environment: Environment, stored: dict[str, Rows]) -> Settings:
    """The upgraded database and the archive."""
    settings = environment.provide("s3")
    earlier_release.fill_bucket(settings)
    return settings


@pytest.fixture(scope="module")
def platform(environment: Environment, archived: Settings) -> Settings:
    return environment.provide("kafka")


def all_rows(settings: Settings) -> dict[str, Rows]:
    with connect(settings) as connection:
        return {schema: rows_of(connection, schema) for schema in SCHEMAS}


def newest_certificate(view: str) -> dict[str, Any]:
    found: dict[str, Any] = answer("certificates", view, "--limit", "1")["certificates"][0]
    return found


def test_an_upgrade_keeps_every_row(stored: dict[str, Rows], archived: Settings) -> None:
    assert {table.rpartition("_v")[0] for table in stored["state"]} >= VERSIONS.keys()
    after = all_rows(archived)
    for schema in SCHEMAS:
        require_kept(stored[schema], after[schema])


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("view", SAME)
def test_a_certificate_of_the_earlier_release_verifies(archived: Settings, view: str) -> None:
    made = newest_certificate(view)
    with shared_spark():
        verified = answer("verify", made["id"])
    assert (verified["answer"], verified["version"]) == ("EQUAL", VERSIONS[view]), verified["reason"]
    assert verified["rows"] == made["row_count"] > 0


@pytest.mark.usefixtures("spark")
def test_a_certificate_of_a_view_with_a_newer_version_says_both_versions(archived: Settings) -> None:
    with shared_spark():
        verified = answer("verify", newest_certificate(NEWER)["id"], exit_code=3)
    assert verified["answer"] == "SUPERSEDED"
    now = catalogue.load_view(NEWER).version
    assert f"made by version {VERSIONS[NEWER]}, " in verified["reason"]
    assert f"now has version {now}, " in verified["reason"]
    assert verified["reason"].endswith("The older release can still verify it.")


def sent_after(ends: Positions, settings: Settings) -> list[bytes | None]:
    """The values of later page views. Retention may delete the earlier ones at any moment, because they are old."""
    found = messages_in_the_log(settings, "page_view")
    return [each.value() for each in found if (each.offset() or 0) >= ends.at("page_view", each.partition() or 0)]


def test_the_streams_of_the_earlier_release_go_on(world: World, batch: Batch, tmp_path: Path) -> None:
    """They begin at their positions. The newer version is built beside the rows that readers see, and proved."""
    begun = {view: world.positions(view) for view in SAME}
    assert all(each.offsets for each in begun.values())
    counted, ends = world.counted("page_views"), topics.end_offsets(world.settings, ["page_view"])
    runtime.up(world.settings, ["ticks"], tethered=True)
    archiver = start(world.settings, "archive.py", TRUELOG_ARCHIVE_TRIGGER_SECONDS="1")
    stream = start(world.settings, "stream.py")
    world.traffic.send(300)
    for view in SAME:
        world.catch_up(stream, view)
    assert world.counted("page_views") - counted == count_valid(sent_after(ends, world.settings))
    with shared_spark():
        [built] = answer("versions", "build", NEWER)["versions"]
        assert built["verdict"] == "EQUAL", built["reason"]
        assert answer("versions", "cut-over", NEWER)["former"] == VERSIONS[NEWER]
        batch.require_equal_from_raw([*VERSIONS])
        for view in VERSIONS:
            verified = answer("verify", newest_certificate(view)["id"])
            assert verified["answer"] == "EQUAL", verified["reason"]
    assert (stream.end(), archiver.end()) == (0, 0)
