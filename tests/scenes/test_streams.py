"""Airflow keeps the applications alive, whatever is killed: an application, its JVM, or Airflow itself."""

import itertools
import json
import logging
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

import runtime
from runtime import keeper, postgresql
from tests.beds.world import World
from tests.chosen_views import copy_views
from tests.command import truelog, truelog_process
from tests.deadline import deadline, until
from tests.library.listener import FAILS, TAKES, Listener, listening
from tests.nightly_cases import nightly_except
from tests.scenes import exposure, stranger
from tests.scenes.airflow_client import Airflow, sign_in, wanted, whole_platform
from tests.speed import record_speed
from truelog.alerts import store as alert_store
from truelog.alerts.sources import outbox as alert_outbox
from truelog.apps import launcher, reader_positions
from truelog.control import application
from truelog.control.application import ApplicationStatus
from truelog.log import topics
from truelog.log.positions import Positions
from truelog.services import registry
from truelog.storage.database import connect
from truelog.streaming import batch_metrics
from truelog.support.errors import ServiceDown
from truelog.support.process import is_alive
from truelog.support.settings import Settings

pytestmark = pytest.mark.own_servers

DAG = "stream_stream"
ALERT_DAG = "alerts_alertmanager"

log = logging.getLogger("truelog.scene")


@pytest.fixture(scope="module")
def pager() -> Iterator[Listener]:
    """A receiver of pages."""
    with listening() as it:
        yield it


@pytest.fixture(scope="module")
def kept(world: World, pager: Listener, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """Airflow and the applications that it runs, with view files that scenes change. All processes stop at the end."""
    folder = copy_views(tmp_path_factory.mktemp("views"), "page_views", "request_rates")
    receivers = {"alertmanager_url": pager.url, "heartbeat_url": f"{pager.url}/beat"}
    with whole_platform(world.settings, views_folder=folder, tick_seconds=2, **receivers) as settings:
        yield settings
    with connect(world.settings) as connection:
        application.set_desired(connection, "stream", application.RUNNING, "a scene")


@pytest.fixture(scope="module")
def oncall(kept: Settings) -> Airflow:
    return sign_in(kept, "oncall")


def status(settings: Settings, name: str = "stream") -> ApplicationStatus:
    with connect(settings) as connection:
        return application.load_status(connection, name)


def wait(
    settings: Settings, condition: Callable[[ApplicationStatus], bool], what: str, seconds: float = 90
) -> ApplicationStatus:
    def met() -> None:
        now = status(settings)
        if not condition(now):
            raise ServiceDown(f"{now}\n{launcher.log_tail(settings, 'stream')}")

    log.warning("%s: %.1f s", what, until(met, seconds, what))
    return status(settings)


def positions(settings: Settings) -> Positions:
    with connect(settings) as connection:
        return reader_positions.view_positions(connection, ["page_views"])["page_views"].positions


def running_again(settings: Settings, before: ApplicationStatus) -> ApplicationStatus:
    return wait(settings, lambda s: s.alive and (s.epoch or 0) > (before.epoch or 0), "running again")


def working(settings: Settings, since: datetime | None = None) -> ApplicationStatus:
    """Wait until the stream has finished a batch (after `since`, if given)."""

    def batched(now: ApplicationStatus) -> bool:
        return now.alive and now.batch_at is not None and (since is None or now.batch_at > since)

    return wait(settings, batched, "a batch")


def test_the_applications_are_started_and_watched(kept: Settings, oncall: Airflow) -> None:
    oncall.wait_for_dag(DAG)
    working(kept)

    def watched() -> None:
        if not status(kept, "archive").alive or _task(oncall) != ("running", "deferred"):
            raise ServiceDown(f"{status(kept, 'archive')} {_task(oncall)}")

    until(watched, 90, "the archive, and a deferred task")


def test_a_stranger_gets_nothing(kept: Settings) -> None:
    """Another user without credentials tries every port of the services and applications, and every file."""
    readable = Path(tempfile.mkstemp(prefix="truelog-readable-")[1])  # shows that the stranger can find a file
    readable.chmod(0o644)
    applications = [launcher.application_processes(status(kept, name)) for name in ("stream", "archive")]
    assert {each.nice() for each in itertools.chain(*applications)} == {os.getpriority(os.PRIO_PROCESS, 0)}
    ports = exposure.listening_ports([*runtime.processes(kept), *itertools.chain(*applications)])
    try:
        checkpoints = [each.resolve() for each in (kept.home / "scratch").iterdir()]
        files = exposure.private_files([kept.home, postgresql._folder(kept), *checkpoints])
        httpx.get(f"http://127.0.0.1:{kept.airflow_port}/", timeout=deadline(30))  # its first answer takes longer
        found = stranger.attempt([*files, readable], ports, silence=deadline(2))
    finally:
        readable.unlink()
    assert (found["files"], exposure.leaks(kept, found["answers"])) == ([str(readable)], [])
    reached = {port for port, _, answer in found["answers"] if answer}
    assert {kept.database_port, kept.airflow_port, *(kept.address(name).port for name in registry.HTTP)} <= reached
    assert len(ports) >= 12  # seven services, and at least three ports of each application


def test_a_second_start_leaves_the_application_alone(kept: Settings) -> None:
    before = status(kept)
    assert launcher.ensure_desired_state(kept, "stream") == "healthy"
    assert status(kept).epoch == before.epoch


def test_status_shows_applications_views_and_memory(kept: Settings) -> None:
    """The whole platform fits in eight gigabytes of memory."""
    shown: dict[str, Any] = {}

    def caught_up() -> None:
        shown.update(json.loads(truelog("status", "--json").stdout))
        shown["streams"] = {each["application"]: each for each in shown["streams"]}
        if (behind := shown["streams"]["stream"]["lag_seconds"]) is None or behind > 30:
            raise ServiceDown(f"the stream is {behind} s behind")

    until(caught_up, 90, "the stream at the end of what other scenes wrote")
    stream = shown["streams"]["stream"]
    assert (set(shown["streams"]), stream["state"]) == ({"archive", "stream"}, "RUNNING")
    assert stream["memory_mb"] > 300
    assert {view["view"]: view["state"] for view in stream["views"]}["page_views"] == "UP_TO_DATE"

    memory = {each["name"]: each["memory_mb"] for each in shown["services"]}
    memory |= {name: each["memory_mb"] for name, each in shown["streams"].items()}
    assert memory.keys() == {*wanted(kept), "archive", "stream"}
    log.warning("the whole platform: %.0f MB", sum(memory.values()))
    assert sum(memory.values()) < 8_000, memory


def test_the_steps_of_each_applications_batches_are_recorded(kept: Settings) -> None:
    def recorded() -> None:
        with connect(kept) as connection:
            batches = [
                batch for name in ("archive", "stream") for batch in batch_metrics.latest_steps(connection, name, 1)
            ]
        if len(batches) < 2 or not all({"addBatch", "triggerExecution"} <= batch.steps.keys() for batch in batches):
            raise ServiceDown(str(batches))

    log.warning("steps of a batch of each application: %.1f s", until(recorded, 90, "steps"))


def test_a_killed_application_is_restarted_and_leaves_no_process(
    kept: Settings, oncall: Airflow, pager: Listener
) -> None:
    """On-call is paged. The resolution arrives once, although the receiver was down when the alert resolved."""
    oncall.wait_for_dag(ALERT_DAG)
    _deferred(oncall, ALERT_DAG)
    until(lambda: _require_calm(kept), 90, "the alerts of the start to resolve")
    before = status(kept)
    family = launcher.application_processes(before)
    killed = time.time()
    psutil.Process(before.pid).kill()
    running_again(kept, before)
    assert [process for process in family if is_alive(process)] == []

    def paged(times: int) -> None:
        if len(_pages(pager, killed)) < times:
            raise ServiceDown(f"{pager.taken}")

    until(lambda: paged(1), 60, "a page")
    [(opened, page), *_] = _pages(pager, killed)
    record_speed("page after the kill of an application", opened - killed)

    pager.mood, tried = FAILS, len(_requests(pager))
    working(kept)

    def refused() -> None:
        if len(_requests(pager)) < tried + 2:
            raise ServiceDown(f"{pager.asked}")

    until(refused, 90, "two tries")
    pager.mood = TAKES
    until(lambda: paged(2), 60, "the resolution")
    _, (_, resolved) = _pages(pager, killed)
    assert resolved["labels"] == page["labels"]
    assert resolved["endsAt"] < page["endsAt"]


def _require_calm(settings: Settings) -> None:
    """Require that no alert for the stream is open or waiting to be sent."""
    with connect(settings) as connection:
        keys = [alert.key for alert in alert_store.open_alerts(connection)]
        waits = alert_outbox.overdue(connection, ["alertmanager"], 0)
    if "application_down/stream" in keys or waits:
        raise ServiceDown(f"{keys} {waits}")


def _pages(pager: Listener, since: float) -> list[tuple[float, dict[str, Any]]]:
    """The notifications that the stream is down, with their times."""
    notified = [(at, body[0]) for at, body in zip(pager.times, pager.taken, strict=True) if isinstance(body, list)]
    return [(at, alert) for at, alert in notified if at >= since and _is_of_the_stream(alert["labels"])]


def _requests(pager: Listener) -> list[str]:
    return [path for path in pager.asked if path != "/beat"]


def _is_of_the_stream(labels: dict[str, str]) -> bool:
    return (labels["alertname"], labels["subject"]) == ("application_down", "stream")


@pytest.mark.parametrize(
    "service",
    nightly_except(["airflow-scheduler"], ["airflow-scheduler", "airflow-triggerer", "airflow-api"]),
)
def test_a_killed_airflow_leaves_the_application_alone(kept: Settings, service: str) -> None:
    before = working(kept)
    pid = _service(kept, service).pid
    psutil.Process(pid).kill()

    def back() -> None:
        now = _service(kept, service)
        if now.pid in (None, pid) or now.state != "READY":
            raise ServiceDown(now.state)

    log.warning("%s is back: %.1f s", service, until(back, 90, service))
    after = working(kept, since=status(kept).batch_at)
    assert (after.epoch, after.pid) == (before.epoch, before.pid)


@pytest.mark.nightly
def test_restarted_airflow_continues_to_watch(kept: Settings) -> None:
    """The JVM is killed, and the Python process that holds the lease ends too."""
    before = working(kept)
    family = launcher.application_processes(before)
    [java] = [process for process in family if process.name() == "java"]
    java.kill()
    running_again(kept, before)
    assert [process for process in family if is_alive(process)] == []


@pytest.mark.nightly
def test_clearing_the_task_restarts_the_application_once(kept: Settings, oncall: Airflow) -> None:
    run, before = _deferred(oncall), status(kept)
    wanted = {"dry_run": False, "dag_run_id": run, "task_ids": ["keep"], "only_failed": False}
    oncall.ask("POST", f"/api/v2/dags/{DAG}/clearTaskInstances", wanted)
    running_again(kept, before)
    assert _deferred(oncall) == run
    assert status(kept).epoch == (before.epoch or 0) + 1


@pytest.mark.nightly
def test_a_release_without_a_changed_fingerprint_restarts_nothing(kept: Settings, oncall: Airflow) -> None:
    """The `streams` DAG detects releases every minute; here it is triggered at once."""
    before = wait(kept, lambda now: now.code_running is not None, "its code")
    with connect(kept) as connection:
        connection.execute("UPDATE truelog.application SET digest = 'other files'")

    oncall.trigger("streams")

    def released() -> None:
        with connect(kept) as connection:
            if application.release_due(connection, kept):
                raise ServiceDown("the wanted code still belongs to other files")

    log.warning("released: %.1f s", until(released, 120, "a release"))
    assert launcher.ensure_desired_state(kept, "stream") == "healthy"
    after = status(kept)
    assert (after.epoch, after.code_running) == (before.epoch, after.code_wanted)


@pytest.mark.nightly
def test_an_application_that_runs_other_code_than_the_release_is_restarted_alone(kept: Settings) -> None:
    before, archive = status(kept), status(kept, "archive")
    with connect(kept) as connection:
        connection.execute("UPDATE truelog.application SET code = 'of a new library' WHERE application = 'stream'")

    after = running_again(kept, before)
    assert after.epoch == (before.epoch or 0) + 1
    assert status(kept, "archive").epoch == archive.epoch


@pytest.mark.nightly
def test_a_changed_view_is_loaded_without_a_restart(kept: Settings, oncall: Airflow) -> None:
    """The `streams` DAG finds nothing to restart afterwards."""
    before, archive = working(kept, since=status(kept).batch_at), status(kept, "archive")
    file = kept.views_folder / "page_views.py"
    file.write_text(file.read_text().replace("version=2", "version=3"))
    wait(kept, lambda now: now.alive and now.code_running not in (None, before.code_running), "loaded", 150)

    oncall.wait_for_run("streams", oncall.trigger("streams"))
    assert [launcher.ensure_desired_state(kept, name) for name in ("stream", "archive")] == ["healthy", "healthy"]
    after = working(kept, since=status(kept).batch_at)
    assert (after.epoch, after.code_wanted) == (before.epoch, after.code_running)
    assert status(kept, "archive").epoch == archive.epoch


def test_the_external_monitor_receives_heartbeats(kept: Settings, pager: Listener) -> None:
    before = pager.paths.count("/beat")

    def has_heartbeat() -> None:
        if pager.paths.count("/beat") == before:
            raise ServiceDown("no further heartbeat yet")

    until(has_heartbeat, 90, "a heartbeat")


@pytest.mark.nightly
def test_down_leaves_no_process_and_a_second_start_loses_nothing(kept: Settings) -> None:
    """After the start, the applications are running again."""
    before = status(kept)
    running = [
        *runtime.processes(kept),
        *launcher.application_processes(before),
        *launcher.application_processes(status(kept, "archive")),
    ]
    ends, before_down = topics.end_offsets(kept, ["page_view"]), positions(kept)

    assert truelog_process("down").returncode == 0
    assert not keeper.is_up(kept)
    assert [process for process in running if is_alive(process)] == []

    began = time.monotonic()
    runtime.up(kept, tethered=True)
    record_speed("second start of the platform", time.monotonic() - began)
    assert topics.end_offsets(kept, ["page_view"]) == ends
    assert positions(kept).covers(before_down)
    running_again(kept, before)


def test_an_application_with_desired_state_stopped_is_stopped(kept: Settings, oncall: Airflow) -> None:
    family = launcher.application_processes(status(kept))
    assert truelog("application", "stop", "stream").returncode == 0
    wait(kept, lambda now: not now.alive, "stopped")
    until(lambda: _require_none(family), 30, "the end of its processes")
    _deferred(oncall)
    assert launcher.ensure_desired_state(kept, "stream") == application.STOPPED
    assert not status(kept).alive


def _require_none(family: list[psutil.Process]) -> None:
    left = [process for process in family if is_alive(process)]
    if left:
        raise ServiceDown(str(left))


def _service(settings: Settings, name: str) -> runtime.State:
    return next(state for state in runtime.status(settings) if state.name == name)


def _task(airflow: Airflow, dag: str = DAG) -> tuple[str, str]:
    """The states of the newest run and of its task that watches. `resting` waits only after a failure."""
    [run, *_] = airflow.runs(dag) or [{"dag_run_id": "", "state": "none"}]
    tasks = airflow.tasks(dag, run["dag_run_id"]) if run["dag_run_id"] else []
    return run["state"], next((str(task["state"]) for task in tasks if task["task_id"] != "resting"), "none")


def _deferred(airflow: Airflow, dag: str = DAG) -> str:
    """Wait until the newest run's task is deferred, and return the run's id."""

    def watching() -> None:
        if _task(airflow, dag) != ("running", "deferred"):
            raise ServiceDown(str(_task(airflow, dag)))

    until(watching, 60, "a deferred task")
    return str(airflow.runs(dag)[0]["dag_run_id"])
