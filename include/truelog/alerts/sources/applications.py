"""Finds applications that are down or hung, have no input, or keep dying.

An application that is starting because of a release, a request or a start of the whole platform is not down, but it is
not healthy yet either.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from truelog.alerts.rules import Finding, Observation
from truelog.apps import launch_history
from truelog.apps.liveness import diagnose
from truelog.control import application
from truelog.control.application import STOPPED, ApplicationStatus, Diagnosis
from truelog.storage import db_snapshot
from truelog.support.durations import in_words
from truelog.support.settings import Settings

APPLICATION_KINDS = ("application_down", "no_input", "application_restarting")


def observe(settings: Settings) -> Observation:
    """Check every application."""
    with db_snapshot.read_snapshot(settings) as connection:
        statuses = {name: application.load_status(connection, name) for name in application.application_names(settings)}
        launches = launch_history.launches(connection, list(statuses))
    now = datetime.now(UTC)
    diagnoses = {name: diagnose(settings, status, now) for name, status in statuses.items()}
    findings, unseen = list[Finding](), set[str]()
    for name, status in statuses.items():
        down = Finding("application_down", name, _why_down(status, diagnoses[name], now))
        if diagnoses[name] in (Diagnosis.DOWN, Diagnosis.HUNG) and not launch_history.is_starting(
            status, launches[name], now
        ):
            findings.append(down)
        elif not _is_healthy(status, diagnoses[name]):
            unseen.add(down.key)
        if (deaths := launches[name].deaths) >= settings.alert_deaths:
            window = in_words(launch_history.DEATHS_WINDOW.total_seconds())
            findings.append(Finding("application_restarting", name, f"died or hung {deaths} times within {window}"))
    if silent := [name for name in statuses if diagnoses[name] is Diagnosis.NO_INPUT]:
        findings.append(Finding("no_input", "log", f"no input for {', '.join(silent)}"))
    elif not _is_input_known(statuses.values(), diagnoses):
        unseen.add("no_input/log")
    return Observation(tuple(findings), frozenset(unseen))


def _is_healthy(status: ApplicationStatus, diagnosis: Diagnosis | None) -> bool:
    """Whether the application is finishing batches, or is stopped on request."""
    if diagnosis in (Diagnosis.DOWN, Diagnosis.HUNG, Diagnosis.NO_INPUT):
        return False
    return not status.alive or status.batch_at is not None


def _is_input_known(statuses: Iterable[ApplicationStatus], diagnoses: Mapping[str, Diagnosis | None]) -> bool:
    """Whether an application has ended a batch since it took its lease, or none is wanted.

    In an outage of Kafka, applications exit after five minutes and start again. While they start, they cannot tell.
    """
    wanted = [each for each in statuses if each.desired != STOPPED]
    working = (each for each in wanted if diagnoses[each.application] in (None, Diagnosis.CHANGED))
    return not wanted or any(each.alive and each.batch_at and each.batch_at == each.quiet_since for each in working)


def _why_down(status: ApplicationStatus, diagnosis: Diagnosis | None, now: datetime) -> str:
    since = status.batch_at or status.taken_at
    last = f"its last batch ended {in_words((now - since).total_seconds())} ago" if since else "it has never run"
    return f"no process holds its lease; {last}" if diagnosis is Diagnosis.DOWN else f"its process is alive, but {last}"
