"""Tests of permissions over HTTP, against the running api-server."""

import json
import math
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from pages.files import TABS
from runtime import airflow
from runtime.airflow_client import Airflow
from tests.builders.applications import forget_application, many_operations
from tests.builders.quality import an_event_validation
from tests.pages.fetch import fetch
from tests.pages.plausible import HOSTILE, PAID
from truelog.alerts import store as alert_store
from truelog.control import application
from truelog.control.application import STREAM
from truelog.reports import timeline
from truelog.spark.submit import SPARK
from truelog.storage import audit_trail
from truelog.storage.database import connect
from truelog.support.settings import Settings

# Runs in a separate process, because Airflow reads its configuration when it is imported.
ROUTES = """
import json
import math
from pages.app import make
print(json.dumps([[route.path, method] for route in make().routes for method in route.methods]))
"""
READABLE = (
    *(
        "streams",
        "views",
        "view",
        "reconciliations",
        "reconciliation",
        "quality",
        "backfills",
        "lag",
        "alerts",
        "timeline",
    ),
    *(
        "static/icon.svg",
        "data/timeline",
        "data/timeline?hours=1",
        "data/operations?subject=page&hours=2",
    ),
    *("operations", "data/quality", "data/quality?of=dead_letter", "data-docs/1"),
    *("static/kit.js", "data/alerts", "data/runbook?kind=stalled", "data/backfills"),
    *("data/streams", "data/vitals", "data/lag", "data/lag?reader=archive&hours=72", "data/operations?kind=repair"),
    *("data/views", "data/view?name=page_views", "data/view?name=broken", "data/reconciliations?view=page_views"),
    *("data/reconciliations?run=scheduled__20", "export/reconciliations.csv?run=scheduled__20"),
    *("data/rows?name=page_views&relation=page_views_busiest", "data/reconciliation?id=1"),
    *("data/rows?name=page_views&where=host+is+NULL&where=views%3E%3D3&columns=host,views&order=views&skip=50",),
    *(
        "export/reconciliations.csv",
        "export/reconciliations.json",
        "export/reconciliations.csv?verdict=EQUAL&text=page",
    ),
    *("data/reconciliations?verdict=EQUAL&since=2026-01-01T00:00:00Z&order=view&skip=10", "certificates", "record"),
    *("dead-letters", "freshness", "data/freshness?reader=archive&reader=page_views&hours=6"),
    *("explain", "data/explain?view=page_views&where=host+is+NULL"),
    *("analytics", "data/cubes", "data/analytics?view=page_views&by=host&hours=1&where=page%3D/item/1"),
    *("data/certificates", "data/certificates?view=page_views", "data/skipped", "data/backfills?skip=5"),
    *("data/partials?since=2026-11-01&until=2026-11-30", "flow", "data/flow", "data/rights"),
)
ABSENT = (
    *(
        "static/app.py",
        "static/..%2fapp.py",
        "static/%2e%2e%2fapp.py",
        "docs",
        "openapi.json",
        "data/view?name=no",
        "data/runbook?kind=../lag",
    ),
    *(
        "data/rows?name=page_views&relation=pg_class",
        "data/rows?name=..",
        "data/lag?reader=no",
        "data/reconciliation?id=0",
    ),
    *("export/differing.json?id=0", "data/runbook?kind=../lag"),
    "export/certificate?id=../certificates",
    *("data/quality?of=no", "data-docs/4711", "data-docs?run=scheduled__1&of=search"),
)


@pytest.fixture(scope="module")
def routes(pages: Settings) -> list[tuple[str, str]]:
    found = subprocess.run(
        [sys.executable, "-c", ROUTES], env=airflow.environment(pages), capture_output=True, text=True, check=True
    )
    return [(path, method) for path, method in json.loads(found.stdout.splitlines()[-1])]


def test_every_route_refuses_anonymous_requests(users: dict[str, Airflow], routes: list[tuple[str, str]]) -> None:
    assert len(routes) > 20
    assert {method for _, method in routes} == {"GET", "POST"}
    for path, method in routes:
        filled = path.format(name="stream", form="csv", number=1).lstrip("/")
        assert fetch(users["anonymous"], method, filled, **{"X-Truelog": "page"}).status == 401, path
        forged = Airflow(users["anonymous"].settings, "x.y.z")
        assert fetch(forged, method, filled, **{"X-Truelog": "page"}).status in (401, 403), path


@pytest.mark.parametrize("user", ["analyst", "oncall", "admin"])
def test_every_signed_in_user_can_read(users: dict[str, Airflow], user: str) -> None:
    assert {path: fetch(users[user], "GET", path).status for path in READABLE} == dict.fromkeys(READABLE, 200)


def test_only_administrators_see_the_components(users: dict[str, Airflow]) -> None:
    found = {user: fetch(users[user], "GET", "components").status for user in ("analyst", "oncall", "admin")}
    assert found == {"analyst": 403, "oncall": 403, "admin": 200}


@pytest.mark.parametrize(
    ("path", "status", "why"),
    [
        ("components", 403, "<h1>Not permitted</h1><p>Only administrators may open this page.</p>"),
        ("export/rows.csv?name=page_views", 403, "requires permission to trigger the reconcile DAG.</p>"),
        ("records", 404, "<h1>Not found</h1>"),
        ("data/view?name=%3Cimg%3E", 404, "No view &#x27;&lt;img&gt;&#x27;.</p>"),
    ],
)
def test_a_browser_shows_why_an_address_is_refused(users: dict[str, Airflow], path: str, status: int, why: str) -> None:
    found = fetch(users["analyst"], "GET", path, Accept="text/html,*/*;q=0.8")
    page = found.read().decode()
    assert (found.status, found.headers.get_content_type()) == (status, "text/html")
    assert why in page
    assert 'href="/truelog/static/pages.css"' in page
    assert fetch(users["analyst"], "GET", path, Accept="application/json").headers.get_content_type() == (
        "application/json"
    )


def test_unknown_paths_and_names_return_404(users: dict[str, Airflow]) -> None:
    assert {path: fetch(users["admin"], "GET", path).status for path in ABSENT} == dict.fromkeys(ABSENT, 404)


@pytest.mark.parametrize(
    "path",
    [
        "data/rows?name=page_views&where=views%3Ex",
        "data/rows?name=page_views&where=views",
        "data/rows?name=page_views&order=x",
        "data/analytics?view=page_views&by=views",
        "data/analytics?view=click_through",
        "data/reconciliations?order=sample",
    ],
)
def test_an_invalid_query_returns_its_reason(users: dict[str, Airflow], path: str) -> None:
    answer = fetch(users["analyst"], "GET", path)
    assert answer.status == 400
    assert json.load(answer)["detail"]


ACTS = (
    ("analyst", "restart", 403),
    ("analyst", "stop", 403),
    ("analyst", "start", 403),
    ("oncall", "stop", 403),
    ("oncall", "start", 403),
    ("oncall", "restart", 200),
    ("admin", "stop", 200),
    ("admin", "restart", 409),  # because the stream is stopped
    ("admin", "start", 200),
    ("admin", "restart", 200),
)


def test_airflow_permissions_decide_actions_and_the_user_is_recorded(
    pages: Settings, users: dict[str, Airflow]
) -> None:
    for user, act, status in ACTS:
        assert fetch(users[user], "POST", f"streams/{STREAM}/{act}", **{"X-Truelog": "page"}).status == status, (
            user,
            act,
        )
    with connect(pages) as connection:
        operations = audit_trail.latest_operations(connection, 4)
        now = application.load_status(connection, STREAM)
    assert [(each.doer, each.kind) for each in reversed(operations)] == [
        (user, act) for user, act, status in ACTS if status == 200
    ]
    assert {each.subject for each in operations} == {STREAM}
    assert now.desired == "running"
    assert now.wish is not None
    assert now.wish.startswith("admin, ")


@pytest.fixture
def acknowledgement_withdrawn(pages: Settings) -> Iterator[None]:
    """Withdraw the acknowledgement, because other tests check which unacknowledged alert the card shows first."""
    yield
    with connect(pages) as connection:
        connection.execute(
            "UPDATE truelog.alert SET acknowledged_at = NULL, acknowledged_by = NULL "
            "WHERE (kind, subject) = ('view_different', 'click_through')"
        )


def test_on_call_users_handle_alerts(
    pages: Settings, users: dict[str, Airflow], acknowledgement_withdrawn: None
) -> None:
    silence = {"pattern": "disk_low/*", "hours": 2, "why": "a new disk"}
    requests = (("acknowledge", {"key": "view_different/click_through"}), ("silence", silence))
    for act, body in requests:
        assert fetch(users["analyst"], "POST", f"alerts/{act}", body, **{"X-Truelog": "page"}).status == 403
        assert fetch(users["oncall"], "POST", f"alerts/{act}", body).status == 403  # from another site's page
        assert fetch(users["oncall"], "POST", f"alerts/{act}", body, **{"X-Truelog": "page"}).status == 200
    found = json.load(fetch(users["oncall"], "GET", "data/alerts"))
    assert {each["key"]: each["acknowledged_by"] for each in found["open"]}["view_different/click_through"] == "oncall"
    [made] = [each for each in found["silences"] if each["pattern"] == "disk_low/*"]
    assert (made["by"], made["why"]) == ("oncall", "a new disk")
    ended = fetch(users["oncall"], "POST", "alerts/unsilence", {"id": made["id"]}, **{"X-Truelog": "page"})
    assert ended.status == 200
    with connect(pages) as connection:
        assert [each.by for each in alert_store.active_silences(connection)] == ["admin"]


@pytest.mark.parametrize(
    ("act", "body"),
    [
        ("acknowledge", {"key": "application_down/none"}),
        ("silence", {"pattern": "*", "hours": 2, "why": ""}),
        ("silence", {"pattern": "*", "hours": 10_000, "why": "forever"}),
        ("silence", {"pattern": "*", "hours": math.nan, "why": "Python writes and reads NaN in JSON"}),
        ("silence", {"pattern": "a\0", "hours": 1, "why": "PostgreSQL stores no NUL"}),
        ("unsilence", {"id": 0}),
    ],
)
def test_invalid_alerts_and_silences_are_refused(users: dict[str, Airflow], act: str, body: object) -> None:
    assert fetch(users["oncall"], "POST", f"alerts/{act}", body, **{"X-Truelog": "page"}).status in (400, 422)


def test_the_data_says_which_input_is_not_read(unread: None, users: dict[str, Airflow]) -> None:
    found = json.load(fetch(users["analyst"], "GET", "data/streams"))
    [topic], [file] = found["suspended_topics"], found["broken_event_files"]
    assert (topic["topic"], topic["application"]) == ("click", "archive")
    assert topic["reason"].startswith("click was deleted.")
    assert (file["event"], file["reason"].split(".")[0]) == ("order", "'(' was never closed")


def test_the_data_says_which_actions_a_user_may_take(users: dict[str, Airflow]) -> None:
    def allowed(user: str) -> set[tuple[bool, bool]]:
        found = json.load(fetch(users[user], "GET", "data/streams"))["applications"]
        return {(each["may_restart"], each["may_stop"]) for each in found}

    assert [allowed(user) for user in ("analyst", "oncall", "admin")] == [
        {(False, False)},
        {(True, False)},
        {(True, True)},
    ]


@pytest.mark.parametrize(("user", "lacks"), [("analyst", 9), ("oncall", 1), ("admin", 0)])
def test_the_data_says_what_a_user_may_not_do(users: dict[str, Airflow], user: str, lacks: int) -> None:
    found = json.load(fetch(users[user], "GET", "data/rights"))["rights"]
    assert len(found) == 9
    refused = [each for each in found if not each["granted"]]
    assert len(refused) == lacks
    if user == "oncall":
        assert (refused[0]["action"], refused[0]["requires"]) == (
            "Stop or start an application",
            f"edit the connection {SPARK}",
        )


@pytest.mark.parametrize(
    "headers", [{}, {"X-Truelog": "page", "Sec-Fetch-Site": "cross-site"}, {"Origin": "http://elsewhere.example"}]
)
def test_another_site_cannot_act(pages: Settings, users: dict[str, Airflow], headers: dict[str, str]) -> None:
    with connect(pages) as connection:
        before = audit_trail.latest_operations(connection, 1)
        assert fetch(users["admin"], "POST", f"streams/{STREAM}/restart", **headers).status == 403
        assert audit_trail.latest_operations(connection, 1) == before


def test_an_action_on_an_unknown_application_returns_404(users: dict[str, Airflow]) -> None:
    assert fetch(users["admin"], "POST", "streams/no/restart", **{"X-Truelog": "page"}).status == 404


def test_data_docs_forbid_scripts_and_are_found_by_run(users: dict[str, Airflow]) -> None:
    sent = fetch(users["analyst"], "GET", "data-docs?run=scheduled__48&of=page_views")
    assert (sent.status, sent.headers["Location"]) == (303, "data-docs/1")
    page = fetch(users["analyst"], "GET", "data-docs/1")
    policy = page.headers["Content-Security-Policy"]
    assert "default-src 'none'; style-src 'self'" in policy
    assert "script-src" not in policy
    found = page.read().decode()
    assert '<a href="../reconciliation?id=1">Back to comparison 1 of page_views</a>' in found
    assert found.count("<a ") == len(TABS) + 2


@pytest.mark.parametrize("path", ["streams", "data/views", "static/kit.js", "export/reconciliations.csv", "no"])
def test_every_response_allows_only_our_scripts(users: dict[str, Airflow], path: str) -> None:
    headers = fetch(users["analyst"], "GET", path).headers
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["X-Frame-Options"] == "SAMEORIGIN"


def test_other_sites_cannot_frame_airflow(users: dict[str, Airflow]) -> None:
    assert fetch(users["anonymous"], "GET", "/api/v2/version").headers["X-Frame-Options"] == "SAMEORIGIN"


def test_the_document_contains_no_data_and_no_inline_script(users: dict[str, Airflow]) -> None:
    page = fetch(users["analyst"], "GET", f"view?name={HOSTILE[1].replace('<', '%3C').replace('>', '%3E')}").read()
    assert b"owned" not in page
    assert page.count(b"<script") == page.count(b'<script type="module" src=') == 1


def test_only_users_who_may_compare_views_may_save_rows(pages: Settings, users: dict[str, Airflow]) -> None:
    query = "name=page_views&where=host%3D%3DHYPERLINK(1)&limit=10"
    paths = [f"export/rows.{form}?{query}" for form in ("csv", "json", "parquet")]
    paths += ["export/differing.csv?id=59", "export/differing.json?id=59"]
    for path in paths:
        assert fetch(users["analyst"], "GET", path).status == 403
    with connect(pages) as connection:
        before = audit_trail.latest_operations(connection, 1)[0].id
    _, json_rows, parquet, *_ = saved = [fetch(users["oncall"], "GET", path).read() for path in paths]
    assert saved[0].decode().splitlines()[1].split(",")[1] == '"""=HYPERLINK(1)"""'
    assert [each["host"] for each in json.loads(json_rows)] == ["=HYPERLINK(1)"]
    assert parquet[:4] == parquet[-4:] == b"PAR1"
    with connect(pages) as connection:
        made = [each for each in audit_trail.latest_operations(connection, 10, "export") if each.id > before]
    assert {each.doer for each in made} == {"oncall"}
    assert [each.subject for each in reversed(made)] == [*["page_views"] * 3, *["reconciliation 59"] * 2]
    assert made[-1].about == "csv: host==HYPERLINK(1), at most 10"
    assert fetch(users["oncall"], "GET", "export/rows.csv?name=page_views&where=views%3Dx").status == 400
    assert fetch(users["oncall"], "GET", "export/rows.csv?name=page_views&relation=pg_class").status == 404


def test_differing_rows_are_exported_unchanged(users: dict[str, Airflow]) -> None:
    """No cell in the CSV file begins as a formula does."""
    head, *rows = fetch(users["oncall"], "GET", "export/differing.csv?id=59").read().decode().splitlines()
    assert head.split(",")[:4] == ["minute streamed", "minute rebuilt", "host streamed", "host rebuilt"]
    assert len(rows) == 3
    assert '"""=HYPERLINK(1)"""' in rows[1]
    assert [PAID[0] in rows[0], PAID[1] in rows[0]] == [True, True]
    text = fetch(users["oncall"], "GET", "export/differing.json?id=59").read().decode()
    assert [text.count(f'"paid":{each},') + text.count(f'"paid":{each}}}') for each in PAID] == [3, 1]
    saved = json.loads(text)
    assert [each["streamed"] and each["streamed"]["page"] for each in saved] == [HOSTILE[3], HOSTILE[4], None]


def test_the_page_of_a_reconciliation_gets_every_digit(users: dict[str, Airflow]) -> None:
    """A browser reads both values as one number, so they are texts."""
    found = json.load(fetch(users["analyst"], "GET", "data/reconciliation?id=59"))
    assert [found["sample"][0][side]["paid"] for side in ("streamed", "rebuilt")] == list(PAID)
    changed = [each for each in found["sample"] if each["rebuilt"] is None]
    assert [(each["streamed"]["views"], each["streamed"]["note"]) for each in changed] == [("3", None)]
    found = json.load(fetch(users["analyst"], "GET", "data/reconciliation?id=60"))
    assert PAID in [tuple((each[side] or {}).get("paid") for side in ("before", "after")) for each in found["repairs"]]


def test_old_results_of_a_type_without_a_file_are_shown_only_on_request(
    pages: Settings, users: dict[str, Airflow]
) -> None:
    def shown(query: str) -> str:
        return str(json.load(fetch(users["analyst"], "GET", f"data/quality{query}"))["of"])

    with connect(pages, autocommit=True) as connection:
        an_event_validation(connection, "away", datetime(2026, 1, 1, tzinfo=UTC), success=False, failed=["too few"])
        try:
            assert (shown(""), shown("?of=away")) == ("page_view", "away")
        finally:
            connection.execute("DELETE FROM truelog.validation WHERE event = 'away'")


def test_a_timeline_says_that_earlier_entries_are_left_out(pages: Settings, users: dict[str, Airflow]) -> None:
    path = "data/timeline?hours=1&until=2020-01-01T01:00:00"

    def found() -> tuple[int, bool]:
        answer = json.load(fetch(users["analyst"], "GET", path))
        return len(answer["occurrences"]), answer["more"]

    with connect(pages, autocommit=True) as connection:
        for added, said in ((timeline.MOST, (timeline.MOST, False)), (1, (timeline.MOST, True))):
            many_operations(connection, "many", added, at=datetime(2020, 1, 1, 0, 30, tzinfo=UTC))
            assert found() == said
        forget_application(connection, "many")
