"""Data contracts: valid by the official schema, with what the declarations say, and checks that PostgreSQL can run."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from pydantic import ValidationError

from tests.library.standards import odcs_defects
from truelog import Sum, View
from truelog.reports.contracts.described import Description, descriptions
from truelog.reports.contracts.odcs import event_contract, view_contract
from truelog.schema.event import EventType
from truelog.schema.loading.events import load_events
from truelog.storage.database import Connection
from truelog.support.settings import Settings
from truelog.views.meaning import Meaning

TYPES = load_events()
SAMPLE = View(
    reads=("page_view",),
    transform=lambda page_view: page_view,
    key=("at", "a"),
    measures={"n": Sum()},
    checks=("n >= 0 AND a <> '{'",),
    present={"doubled": "SELECT a, 2 * n AS n FROM {view}"},
    meanings={"doubled": Meaning("Twice as many.")},
    about="Rows of a test.",
    keep="7 days",
    owner="shop team",
)
ROWS = """
CREATE VIEW views.sample AS SELECT now() AS at, 'a'::text AS a, 1::numeric AS n, '{}'::jsonb AS o;
CREATE VIEW views.sample_doubled AS SELECT a, 2 * n AS n FROM views.sample;
CREATE VIEW presented.sample AS SELECT * FROM views.sample;
COMMENT ON COLUMN views.sample.a IS 'what a means';
"""


@pytest.fixture
def sample(postgresql: Settings, connection: Connection) -> Iterator[dict[str, Any]]:
    """The contract of a view with one row."""
    connection.execute(ROWS.encode())
    contract = view_contract(postgresql, connection, "sample", SAMPLE)
    assert contract is not None
    yield contract
    connection.execute("DROP VIEW presented.sample, views.sample_doubled, views.sample")


@pytest.mark.parametrize("event_type", TYPES.values(), ids=TYPES)
def test_the_contract_of_each_event_type_is_valid(settings: Settings, event_type: EventType) -> None:
    about = descriptions(settings)[event_type.name]
    contract = event_contract(settings, event_type, about)
    assert odcs_defects(contract) == []
    assert odcs_defects(event_contract(settings, event_type, Description())) == []
    fields = {each["name"]: each for each in contract["schema"][0]["properties"]}
    assert fields.keys() == {each.name for each in event_type.fields}
    assert all(each.get("description") for each in fields.values())


def test_the_schema_notices_defects(sample: dict[str, Any]) -> None:
    assert odcs_defects(sample | {"kind": "Contract"})
    assert odcs_defects({name: value for name, value in sample.items() if name != "version"})
    with pytest.raises(ValidationError, match="invented"):
        odcs_defects(sample | {"invented": 1})


def test_a_contract_has_the_bounds_and_the_checks_of_an_event_type(settings: Settings) -> None:
    contract = event_contract(settings, TYPES["cart_event"], descriptions(settings)["cart_event"])
    fields = {each["name"]: each for each in contract["schema"][0]["properties"]}
    assert fields["cart_id"]["logicalTypeOptions"] == {"minLength": 1, "maxLength": 128}
    assert (fields["cart_id"]["partitioned"], fields["visitor_id"]["classification"]) == (True, "personal")
    [allowed] = fields["verb"]["quality"]
    assert allowed["arguments"]["validValues"][0] == "added"
    [needed] = fields["quantity"]["quality"]
    assert needed["description"] == "An event needs quantity if verb is added or quantity_changed."
    assert contract["slaProperties"][0]["value"] == "7 days"
    referrer = event_contract(settings, TYPES["page_view"], Description())["schema"][0]["properties"]
    assert [each["quality"][0]["mustBeLessOrEqualTo"] for each in referrer if each["name"] == "referrer"] == [90]


def test_a_contract_describes_a_view(sample: dict[str, Any], postgresql: Settings, connection: Connection) -> None:
    assert odcs_defects(sample) == []
    rows, doubled = sample["schema"]
    assert (rows["name"], rows["description"]) == ("sample", "Rows of a test.")
    assert (doubled["name"], doubled["description"]) == ("sample_doubled", "Twice as many.")
    at, a, n, o = rows["properties"]
    assert (at["logicalType"], at["primaryKeyPosition"], a["primaryKeyPosition"]) == ("timestamp", 1, 2)
    assert (a["description"], n["logicalType"], o["logicalType"]) == ("what a means", "number", "object")
    assert sample["team"] == {"name": "shop team"}
    assert view_contract(postgresql, connection, "none", SAMPLE) is None


def test_the_checks_of_a_view_can_be_run(sample: dict[str, Any], postgresql: Settings) -> None:
    """As the role that connects a tool. No comparison has found the rows equal yet, and all rows meet the check."""
    proved, unique, met = sample["schema"][0]["quality"]
    assert unique["arguments"] == {"properties": ["at", "a"]}
    signed = postgresql.database() | {"user": "analyst", "password": postgresql.analyst_password.get_secret_value()}
    with psycopg.connect(**signed) as analyst:
        assert analyst.execute(proved["query"].encode()).fetchall() == [(0,)]
    with psycopg.connect(**postgresql.database()) as connection:
        assert connection.execute(met["query"].encode()).fetchall() == [(met["mustBe"],)]
