"""The alert watch: every alert kind has one source, and a source that fails resolves nothing."""

from collections.abc import Iterator

import pytest

from tests.library.alert_tables import emptied
from truelog.alerts import scheduler as alert_scheduler
from truelog.alerts import store as alert_store
from truelog.alerts.kind import KINDS
from truelog.alerts.rules import SOURCE_DOWN, Finding, Observation, Source
from truelog.storage.database import Connection
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings


@pytest.fixture
def database(postgresql: Settings) -> Iterator[Connection]:
    with emptied(postgresql) as connection:
        yield connection


def test_every_kind_has_one_source_and_source_names_are_unique() -> None:
    kinds = [kind for source in alert_scheduler.SOURCES for kind in source.kinds]
    assert sorted([*kinds, SOURCE_DOWN]) == sorted(KINDS)
    assert len({source.name for source in alert_scheduler.SOURCES}) == len(alert_scheduler.SOURCES)


def test_a_blind_source_resolves_nothing_and_opens_an_alert_of_its_own(
    postgresql: Settings, database: Connection
) -> None:
    """This holds for every error. Other sources are unaffected."""
    results: list[Observation | Exception] = [
        Observation((Finding("application_down", "one", "it died"),)),
        ServiceDown("no answer"),
        ZeroDivisionError("a defect"),
        Observation(),
    ]

    def observe(_: Settings) -> Observation:
        result = results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result

    source = Source("made up", ("application_down",), 1, observe)
    other = Source("another", (), 1, lambda _: Observation())
    alert_scheduler.watch_once(postgresql, source)
    assert alert_scheduler.overdue_sources(database, [source, other]) == ["another"]
    alert_scheduler.watch_once(postgresql, source)
    database.execute("UPDATE truelog.alert SET found_at = found_at - interval '2 minutes'")
    alert_scheduler.watch_once(postgresql, source)
    assert {(alert.key, alert.cause) for alert in alert_store.open_alerts(database)} == {
        ("application_down/one", "it died"),
        ("alert_source_down/made up", "ZeroDivisionError: a defect"),
    }
    alert_scheduler.watch_once(postgresql, other)
    assert len(alert_store.open_alerts(database)) == 2
    alert_scheduler.watch_once(postgresql, source)
    database.execute("UPDATE truelog.alert SET gone_at = gone_at - interval '1 hour'")
    results.append(Observation())
    alert_scheduler.watch_once(postgresql, source)
    assert alert_store.open_alerts(database) == []
    database.execute(
        "UPDATE truelog.alert_source SET looked_at = looked_at - interval '2 minutes' WHERE source = 'another'"
    )
    assert alert_scheduler.overdue_sources(database, [source, other]) == ["another"]


def test_every_source_observes(postgresql: Settings, database: Connection) -> None:
    """The sources run as in the service. A database that is down does not end the watch."""
    for source in alert_scheduler.SOURCES:
        alert_scheduler.watch_once(postgresql.model_copy(update={"database_port": 1}), source)
        alert_scheduler.watch_once(postgresql, source)
    assert alert_scheduler.overdue_sources(database) == []
    assert database.execute("SELECT source, blind FROM truelog.alert_source WHERE blind <> ''").fetchall() == []
