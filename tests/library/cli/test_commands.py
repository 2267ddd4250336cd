"""Commands with real services: their output for scripts and their exit codes. `test_failure.py` stops the services."""

import gzip
import json
import re
import stat
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest
import yaml

from tests.builders.views import a_lag_sample, a_view, merged_to
from tests.command import answer, truelog
from tests.house.tree import PROJECT
from tests.library.standards import asyncapi_defects, odcs_defects
from tests.scenes.traffic import in_the_log
from truelog import Sum, View
from truelog.control.application import ARCHIVE
from truelog.log import topics
from truelog.log.positions import Positions
from truelog.reports.dbt_source import dbt_source
from truelog.storage.database import connect
from truelog.support.settings import Settings
from truelog.traffic import generator

pytestmark = pytest.mark.usefixtures("platform")

DOCUMENTED = re.compile(r"^\.venv/bin/truelog (.*--(?:asyncapi|odcs))$", re.MULTILINE)
LOGGED = "17/May/2026:10:05:03 +0000"
LINE = f'192.0.2.1 - - [{LOGGED}] "GET /p HTTP/1.1" 200 512 "-" "Firefox"'
VIEW = '''"""A view of a test."""
from truelog import Sum, View
VIEW = View(
    reads=("page_view",), transform=lambda page_view: page_view, key=("a",), measures={"n": Sum()},
    checks=("n > 1",), present={"doubled": "SELECT a, 2 * n AS n FROM {view}"},
)
'''


CREATE = """
CREATE VIEW views.made_view AS SELECT * FROM (VALUES
    (timestamptz '2015-05-17 10:05+00', 'é "', 12345678901234567890123::numeric), (NULL, NULL, 2), (NULL, 'z', 3)
) AS v (at, a, n);
CREATE VIEW views.made_view_doubled AS SELECT a, 2 * n AS n FROM views.made_view;
CREATE VIEW views.made_view_v1 AS SELECT 'former' AS a, 9 AS n;
CREATE VIEW views.made_view_v1_doubled AS SELECT a, 2 * n AS n FROM views.made_view_v1;
COMMENT ON COLUMN views.made_view.a IS 'what a means';
"""


@pytest.fixture(scope="module")
def views(platform: Settings, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with two views: `made_view` has a relation with three rows, and `unmade_view` has no table."""
    folder = tmp_path_factory.mktemp("views")
    for name in ("made_view", "unmade_view"):
        (folder / f"{name}.py").write_text(VIEW)
    with connect(platform, autocommit=True) as connection:
        connection.execute(CREATE.encode())
        for version, offsets in ((1, {0: 7}), (2, {0: 5, 1: 6})):
            a_view(connection, "made_view", version)
            merged_to(connection, "made_view", Positions({"page_view": offsets}, {"page_view": "x"}), version)
        polled = {"topic": "page_view", "partition": 0, "seconds": 0.5, "blind": ""}
        a_lag_sample(connection, "made_view", [polled], version=2)
    return str(folder)


def test_a_log_is_imported_and_malformed_lines_are_stored(platform: Settings, tmp_path: Path) -> None:
    log = tmp_path / "access.log.gz"
    log.write_bytes(gzip.compress(f"{LINE}\nnot a line\n{LINE}\n".encode()))
    before = len(in_the_log(platform))

    result = answer("import", "access-log", str(log), "--host", "commands.example")

    aside = Path(result.pop("kept_aside"))
    assert result == {"lines": 3, "sent": 2, "malformed": 1, "future": 0}
    assert aside.read_text() == "not a line\n"
    assert [stat.S_IMODE(each.stat().st_mode) for each in (aside, aside.parent)] == [0o600, 0o700]
    values = in_the_log(platform)
    assert len(values) == before + 2
    urls = [json.loads(value)["url"] for value in values if value and b"commands.example" in value]
    assert urls == ["http://commands.example/p"] * 2


def test_a_log_without_malformed_lines_stores_none(platform: Settings, tmp_path: Path) -> None:
    (tmp_path / "access.log").write_text(f"{LINE}\n")
    result = answer("import", "access-log", str(tmp_path / "access.log"))
    assert result == {"lines": 1, "sent": 1, "malformed": 0, "future": 0, "kept_aside": None}
    assert not list((platform.home / "imports").glob("access.log.malformed"))


def test_an_import_leaves_what_earlier_imports_of_files_of_the_same_name_set_aside(
    platform: Settings, tmp_path: Path
) -> None:
    kept = []
    for number, text in enumerate(("first\n", f"{LINE}\n", "second\n")):
        log = tmp_path / str(number) / "[red] same.log"
        log.parent.mkdir()
        log.write_text(text)
        kept.append(answer("import", "access-log", str(log))["kept_aside"])
    assert kept[1] is None
    assert [Path(str(each)).read_text() for each in (kept[0], kept[2])] == ["first\n", "second\n"]


def test_a_line_of_the_future_is_set_aside_as_the_collector_refuses_it(platform: Settings, tmp_path: Path) -> None:
    now = datetime.now(UTC)
    lines = [LINE.replace(LOGGED, f"{now + timedelta(minutes=m):%d/%b/%Y:%H:%M:%S +0000}") for m in (0, 4, 20)]
    (tmp_path / "fast.log").write_text("".join(f"{line}\n" for line in lines))
    result = answer("import", "access-log", str(tmp_path / "fast.log"))
    aside = Path(result.pop("kept_aside"))
    assert result == {"lines": 3, "sent": 2, "malformed": 0, "future": 1}
    assert aside.read_text() == f"{lines[2]}\n"
    ended = truelog("import", "access-log", str(tmp_path / "fast.log"))
    assert "1 lines are in the future" in ended.stdout


def test_truncated_and_missing_files_exit_with_2(platform: Settings, tmp_path: Path) -> None:
    log = tmp_path / "cut.log.gz"
    log.write_bytes(gzip.compress(f"{LINE}\n".encode() * 1_000)[:-20])
    ended = truelog("import", "access-log", str(log), "--json")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "cut.log.gz could not be read completely" in ended.stderr
    assert truelog("import", "access-log", str(tmp_path / "none")).returncode == 2


def test_generated_traffic_is_in_the_log(platform: Settings) -> None:
    before = topics.end_offsets(platform, generator.TOPICS)

    result = answer("generate", "--rate", "600", "--seconds", "1", "--seed", "1")

    after = topics.end_offsets(platform, generator.TOPICS)
    grown = {t: sum(after.offsets[t].values()) - sum(before.offsets[t].values()) for t in generator.TOPICS}
    assert result.pop("seconds") > 0.9  # the last event is due after a second
    assert result == {"seed": 1, "sent": 600, "topics": grown}
    same = generator.generate(seed=1, begin=datetime(2026, 1, 1, tzinfo=UTC), rate=600, seconds=1, social=0.2)
    expected = Counter(event_id(record.value) for record in same if record.topic == "search")
    assert Counter(map(event_id, in_the_log(platform, "search"))) == expected
    assert len(expected) > 10


def event_id(value: bytes | None) -> str | None:
    """The id of an event, which does not depend on the time; None for a malformed record."""
    try:
        return str(json.loads(value or b"")["event_id"])
    except (ValueError, TypeError, KeyError):
        return None


@pytest.mark.parametrize("words", [["reconcile", "nothing"], ["recompute", "nothing", "--day", "2026-11-01"]])
def test_an_unknown_view_is_wrong_usage(words: list[str]) -> None:
    ended = truelog(*words)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "page_views" in ended.stderr


def test_query_prints_rows_as_lines_of_json(views: str) -> None:
    ended = truelog("query", "made_view", TRUELOG_VIEWS_FOLDER=views)
    assert [json.loads(line) for line in ended.stdout.splitlines()] == [
        {"at": "2015-05-17T10:05:00+00:00", "a": 'é "', "n": 12345678901234567890123},
        {"at": None, "a": None, "n": 2},
        {"at": None, "a": "z", "n": 3},
    ]
    assert answer("query", "made_view", "--limit", "1", TRUELOG_VIEWS_FOLDER=views)["a"] == 'é "'
    assert truelog("query", "made_view", "--limit", "0", TRUELOG_VIEWS_FOLDER=views).stdout == ""


def test_query_of_another_relation(views: str) -> None:
    ended = truelog("query", "made_view", "--relation", "doubled", TRUELOG_VIEWS_FOLDER=views)
    assert [json.loads(line)["n"] for line in ended.stdout.splitlines()][1:] == [4, 6]


def test_query_of_a_version(views: str) -> None:
    """Nothing is said about the version that readers see."""
    asked = ("query", "made_view", "--version", "1")
    ended = truelog(*asked, TRUELOG_VIEWS_FOLDER=views)
    assert (ended.stdout, ended.stderr) == ('{"a":"former","n":9}\n', "")
    assert answer(*asked, "--relation", "doubled", TRUELOG_VIEWS_FOLDER=views) == {"a": "former", "n": 18}
    unknown = truelog("query", "made_view", "--version", "7", TRUELOG_VIEWS_FOLDER=views)
    assert (unknown.returncode, unknown.stdout) == (3, "")
    assert "made_view_v7 does not exist yet" in unknown.stderr


def test_query_of_an_unknown_or_unmade_view(views: str) -> None:
    unknown = truelog("query", "nothing", TRUELOG_VIEWS_FOLDER=views)
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert truelog("query", "made_view", "--relation", "tripled", TRUELOG_VIEWS_FOLDER=views).returncode == 2
    unmade = truelog("query", "unmade_view", TRUELOG_VIEWS_FOLDER=views)
    assert (unmade.returncode, unmade.stdout) == (3, "")
    assert "does not exist yet" in unmade.stderr


def test_positions_are_those_of_the_deployed_version(views: str) -> None:
    found = answer("positions", TRUELOG_VIEWS_FOLDER=views)
    assert found == {"made_view": {"page_view": {"0": 5, "1": 6}}, "unmade_view": {}}


def test_views_lists_the_catalogue(views: str) -> None:
    applications = '{"made_view": "other"}'
    found = answer("views", TRUELOG_VIEWS_FOLDER=views, TRUELOG_APPLICATIONS=applications)
    made_view, unmade_view = found["views"]
    assert made_view.pop("as_of")
    assert made_view.pop("age") >= 0
    assert made_view == {
        "view": "made_view",
        "version": 1,
        "reads": ["page_view"],
        "key": ["a"],
        "measures": {"n": "Sum()"},
        "presents": ["doubled"],
        "keep": None,
        "application": "other",
        "columns": [
            {"name": "at", "type": "timestamp with time zone", "comment": None},
            {"name": "a", "type": "text", "comment": "what a means"},
            {"name": "n", "type": "numeric", "comment": None},
        ],
        "positions": {"page_view": {"0": 5, "1": 6}},
        "layer": "stream",
        "reason": "",
        "proved_at": None,
    }
    assert answer("views", "unmade_view", TRUELOG_VIEWS_FOLDER=views)["views"] == [unmade_view]
    assert unmade_view["layer"] is None
    assert (unmade_view["application"], unmade_view["columns"], unmade_view["positions"]) == ("stream", [], {})


# The SQL that dbt makes of its generic tests, for the rows of made_view and for two wrong rows.
DBT_TESTS = {
    "unique": "SELECT {0} FROM {1} WHERE {0} IS NOT NULL GROUP BY {0} HAVING count(*) > 1",
    "not_null": "SELECT * FROM {1} WHERE {0} IS NULL",
}
WRONG = "(VALUES (NULL, NULL::text, 1), (NULL, NULL, 2)) AS v (at, a, n)"


def test_views_are_a_source_of_dbt(views: str, platform: Settings) -> None:
    source = answer("views", "--dbt", TRUELOG_VIEWS_FOLDER=views)["sources"][0]
    assert (source["schema"], source["database"]) == ("views", platform.database_name)
    made, doubled = source["tables"]  # `unmade_view` has no table
    assert (made["name"], made["description"], doubled["name"]) == (
        "made_view",
        "A view of a test.",
        "made_view_doubled",
    )
    assert made["columns"][1]["description"] == "what a means"
    assert doubled["data_tests"] == []
    signed = platform.database() | {"user": "analyst", "password": platform.analyst_password.get_secret_value()}
    with psycopg.connect(**signed) as connection:
        for table in (made, doubled):
            [(as_of,)] = connection.execute(table["config"]["loaded_at_query"]).fetchall()
            assert as_of
        for test in made["data_tests"]:
            [(kind, found)] = test.items()
            query = DBT_TESTS[kind].format(found["arguments"]["column_name"], "{}")
            assert connection.execute(query.format("views.made_view").encode()).fetchall() == []
            assert len(connection.execute(query.format(WRONG).encode()).fetchall()) == 1, found["name"]


def test_a_text_of_a_view_is_no_template_of_dbt(platform: Settings) -> None:
    """dbt renders texts in braces, also those of descriptions."""
    braces = View(
        reads=("page_view",),
        transform=lambda page_view: page_view,
        key=("a",),
        measures={"n": Sum()},
        checks=("'{{' = '{{'",),
    )
    with connect(platform) as connection:
        connection.execute("CREATE VIEW views.braces AS SELECT 'a' AS a, 1 AS n")
        connection.execute("COMMENT ON COLUMN views.braces.a IS 'a {% word %}'")
        [table] = dbt_source(platform, connection, {"braces": braces})["sources"][0]["tables"]
        connection.rollback()
    assert table["columns"][0]["description"] == "{% raw %}a {% word %}{% endraw %}"
    assert table["data_tests"][1]["not_null"]["arguments"]["column_name"].startswith("{% raw %}CASE")


def test_the_commands_of_the_page_print_valid_documents(platform: Settings) -> None:
    """Each command of `docs/contracts.md`."""
    page = (PROJECT / "docs/contracts.md").read_text()
    with connect(platform, autocommit=True) as connection:
        connection.execute("CREATE VIEW views.cart AS SELECT 'c1' AS cart_id, 'lamp' AS product, 1::bigint AS quantity")
        printed = [truelog(*words.split()) for words in DOCUMENTED.findall(page)]
        connection.execute("DROP VIEW views.cart")
    topics_document, event, cart = (yaml.safe_load(ended.stdout) for ended in printed)
    assert [asyncapi_defects(topics_document), odcs_defects(event), odcs_defects(cart)] == [[], [], []]
    [query] = re.findall(r"```sql\n(.*?)\n```", page)
    assert cart["schema"][0]["quality"][0]["query"] == query


def test_several_contracts_are_several_documents(views: str) -> None:
    ended = truelog("views", "--odcs", TRUELOG_VIEWS_FOLDER=views)
    [made] = yaml.safe_load_all(ended.stdout)
    assert odcs_defects(made) == []
    assert [each["name"] for each in made["schema"]] == ["made_view", "made_view_doubled"]
    assert "unmade_view  no table yet" in ended.stderr
    assert answer("views", "--odcs", TRUELOG_VIEWS_FOLDER=views) == {"contracts": [made]}


def test_an_event_type_shows_its_allowed_and_its_required_values() -> None:
    shown = truelog("events", "show", "cart_event").stdout.splitlines()
    assert "events with the same cart_id are in order" in shown
    assert "  verb  str  required  one of added, quantity_changed, removed, checked_out" in shown
    assert "  quantity is required if verb is added or quantity_changed" in shown
    found = answer("events", "show", "cart_event")
    assert (found["key"], found["json_schema"]["properties"]["verb"]["enum"][0]) == ("cart_id", "added")
    assert len(found["json_schema"]["allOf"]) == 2


def test_sql_prints_columns_and_rows(platform: Settings) -> None:
    query = (
        "SELECT 1 AS n, 2 AS n, 'nan'::DOUBLE AS odd, NULL AS nothing, timestamptz '2015-05-17 10:05+00' AS at -- so;"
    )
    assert answer("sql", query) == {
        "columns": ["n", "n_1", "odd", "nothing", "at"],
        "rows": [{"n": 1, "n_1": 2, "odd": "NaN", "nothing": None, "at": "2015-05-17 10:05:00+00"}],
    }


@pytest.mark.parametrize("words", [[], ["nothing", "--day", "2026-11-01"], ["page_views", "--day", "yesterday"]])
def test_recompute_with_wrong_arguments_exits_with_2(platform: Settings, words: list[str]) -> None:
    ended = truelog("recompute", *words, "--json")
    assert (ended.returncode, ended.stdout) == (2, "")


def test_a_wrong_query_exits_with_2_and_its_position(platform: Settings) -> None:
    ended = truelog("sql", "SELECT url,\n  nothing FROM page_view", "--json")
    assert (ended.returncode, ended.stdout) == (2, "")
    *_, line, marked = ended.stderr.splitlines()
    assert line == "LINE 2:   nothing FROM page_view"
    assert marked == "^^^^^^^".rjust(line.index("nothing") + len("nothing"))
    assert "Traceback" not in ended.stderr


def test_without_a_loss_none_is_accepted_even_while_the_archive_runs(platform: Settings) -> None:
    with connect(platform) as running:
        running.execute("SELECT pg_try_advisory_lock(hashtextextended(%s, 0))", (ARCHIVE,))
        assert answer("archive", "accept-loss") == {"lost": []}
