"""Each query of the dashboards for Grafana and Superset runs in a real database, on the tables that views deploy."""

import json
import re
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
import yaml

from runtime.credentials import PORTS
from tests.beds.lab import Lab
from tests.builders.views import forget
from tests.library.tables import superset_bundle
from truelog.support.settings import PROJECT, Settings
from truelog.tables import deploy as table
from truelog.views import catalogue

FOLDER = PROJECT / "docs" / "monitoring"
BOARD = json.loads((FOLDER / "grafana-views.json").read_text())
SOURCES = {
    each["uid"]: each for each in yaml.safe_load((FOLDER / "grafana-datasources.yml").read_text())["datasources"]
}
PANELS: list[dict[str, Any]] = BOARD["panels"]
QUERIES = [target["rawSql"] for panel in PANELS for target in panel["targets"]]
DATASETS = superset_bundle.parts("datasets")
CHARTS = superset_bundle.parts("charts")
STATEMENTS = [superset_bundle.statement(each, DATASETS[each["dataset_uuid"]]) for each in CHARTS.values()]
VIEWS = {view for query in [*QUERIES, *STATEMENTS] for view in re.findall(r"\b(?:views|presented)\.([a-z_]+)", query)}
PRESENTED = {"trends_rising": "trends"}
NAMES = sorted({PRESENTED.get(each, each) for each in VIEWS})
COLUMNS = """
SELECT attname::text, replace(upper(format_type(atttypid, atttypmod)), ',', ', '), col_description(attrelid, attnum)
FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0
"""
SUFFIX = f"_{uuid.uuid4().hex[:8]}"  # no other test uses these names


def expanded(query: str, suffix: str = "") -> str:
    """The SQL that Grafana makes of its macros. Views have names with this suffix."""
    query = re.sub(rf"\b(views|presented)\.({'|'.join(NAMES)})", rf"\1.\2{suffix}", query)
    until = datetime.now(UTC)
    since = until - timedelta(days=1)
    query = re.sub(r"\$__timeFilter\((\w+)\)", rf"\1 BETWEEN '{since:%FT%TZ}' AND '{until:%FT%TZ}'", query)
    alias = r"floor(extract(epoch from \1)/300)*300 AS \"time\"".replace('\\"', '"')
    return re.sub(r"\$__timeGroupAlias\((\w+), \$__interval\)", alias, query)


@pytest.fixture
def shipped(lab: Lab) -> Iterator[Lab]:
    """The tables of the views that the dashboards read, and of no other view."""
    for name in NAMES:
        table.deploy_table(lab.connection, lab.compiled(name + SUFFIX, catalogue.load_view(name)))
    yield lab
    forget(lab.connection, *(name + SUFFIX for name in NAMES))


def test_each_query_runs_as_the_analyst(shipped: Lab) -> None:
    """With the fields of Grafana's data source. Superset's datasets have the types and comments of the relations."""
    settings, source = shipped.settings, SOURCES["truelog-views"]
    signed = settings.database() | {"user": source["user"], "password": settings.analyst_password.get_secret_value()}
    signed |= {"sslmode": source["jsonData"]["sslmode"]}
    with psycopg.connect(**signed) as connection:
        connection.execute(f"SELECT * FROM presented.page_views{SUFFIX}, presented.trends{SUFFIX}_rising".encode())
        for query in QUERIES:
            names = {each.name for each in connection.execute(expanded(query, SUFFIX).encode()).description or ()}
            assert "$" not in expanded(query)
            assert "time" in names or "table" in {p["type"] for p in PANELS if p["targets"][0]["rawSql"] == query}
        for query in STATEMENTS:
            connection.execute(expanded(query, SUFFIX).encode())
        for dataset in DATASETS.values():
            require_columns(connection, dataset)


def require_columns(connection: psycopg.Connection, dataset: superset_bundle.Part) -> None:
    name = expanded(superset_bundle.relation(dataset), SUFFIX)
    found = {column: each for column, *each in connection.execute(COLUMNS, (name,))}
    columns = {each["column_name"]: each for each in dataset["columns"]}
    assert {each: [columns[each]["type"], columns[each]["description"]] for each in columns} == {
        each: found[each] for each in columns
    }
    assert {each for each in columns if columns[each]["is_dttm"]} == {
        each for each in columns if found[each][0] == "TIMESTAMP WITH TIME ZONE"
    }
    [(meaning,)] = connection.execute("SELECT obj_description(%s::regclass, 'pg_class')", (name,)).fetchall()
    assert dataset["description"] == meaning


def test_the_bundle_of_superset_holds_together() -> None:
    [database] = superset_bundle.parts("databases").values()
    port, name = PORTS["postgresql"], Settings.model_fields["database_name"].default
    assert database["sqlalchemy_uri"] == f"postgresql+psycopg2://analyst:{10 * 'X'}@127.0.0.1:{port}/{name}"
    assert {each["database_uuid"] for each in DATASETS.values()} == {database["uuid"]}
    assert {each["dataset_uuid"] for each in CHARTS.values()} == set(DATASETS)
    [board] = superset_bundle.parts("dashboards").values()
    place = board["position"]
    shown = {each["meta"]["uuid"]: each for each in place.values() if "type" in each and each["type"] == "CHART"}
    assert {each: shown[each]["meta"]["sliceName"] for each in shown} == {
        each["uuid"]: each["slice_name"] for each in CHARTS.values()
    }
    for row in place["GRID_ID"]["children"]:
        assert sum(place[each]["meta"]["width"] for each in place[row]["children"]) <= 12


def test_each_panel_has_a_place_and_the_chosen_data_source() -> None:
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in PANELS)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    assert {panel["datasource"]["uid"] for panel in PANELS} == {"${datasource}"}


def test_each_dashboard_finds_its_data_source() -> None:
    """Grafana chooses the first data source of the type that the variable names."""
    variables = {}
    for file in ("grafana.json", "grafana-views.json"):
        board = json.loads((FOLDER / file).read_text())
        [variable] = board["templating"]["list"]
        variables[board["uid"]] = variable["query"]
    assert len(variables) == 2
    assert sorted(variables.values()) == sorted(each["type"] for each in SOURCES.values())
    views = SOURCES["truelog-views"]
    assert views["url"] == f"127.0.0.1:{PORTS['postgresql']}"
    assert views["jsonData"]["database"] == Settings.model_fields["database_name"].default
    assert views["secureJsonData"] == {"password": "$TRUELOG_ANALYST_PASSWORD"}
    [provider] = yaml.safe_load((FOLDER / "grafana-dashboards.yml").read_text())["providers"]
    assert (provider["type"], provider["allowUiUpdates"]) == ("file", False)


def test_no_query_adds_distinct_counts_or_quantiles() -> None:
    added = re.compile(r"\b(?:sum|avg)\((?:visitors|\w+_p\d+)", re.IGNORECASE)
    assert [query for query in [*QUERIES, *STATEMENTS] if added.search(query)] == []
