"""`truelog tail` of a view and of a topic, on real services."""

import json
from collections.abc import Iterator

import pytest

import runtime
from tests.command import truelog
from tests.library.relay.published import EXACT, Published, declared, publish_all
from truelog.storage.database import connect
from truelog.support.settings import Settings
from truelog.tables import deploy


@pytest.fixture(scope="module")
def view(platform: Settings) -> Iterator[Published]:
    """The name is that of a view whose file exists."""
    runtime.up(platform, ("api",), tethered=True)
    with connect(platform, autocommit=True) as connection:
        made = Published(platform, connection, declared("cart"))
        deploy.deploy_table(connection, made.compiled)
        made.change({"p1": EXACT, "p2": "2"})
        made.change({}, "p2")
        publish_all(platform)
        yield made


def lines(*words: str) -> list[dict[str, object]]:
    ended = truelog("tail", *words, "--json")
    assert (ended.returncode, ended.stderr) == (0, "")
    return [json.loads(line, parse_float=str) for line in ended.stdout.splitlines()]


def test_the_rows_of_a_view_are_printed(view: Published) -> None:
    """With every digit."""
    assert lines("cart", "-n", "1") == [
        {"number": 3, "key": {"product": "p1"}, "row": {"product": "p1", "amount": EXACT}}
    ]
    assert lines("cart", "--where", "product=p1", "-n", "1")[0]["key"] == {"product": "p1"}
    assert truelog("tail", "cart", "-n", "1").stdout.startswith('number 3  key {"product":"p1"}  row {')


def test_the_records_of_a_topic_are_printed(view: Published) -> None:
    first, second, removed = lines(view.topic, "--from-beginning", "-n", "3")
    assert (first["partition"], first["offset"], first["key"]) == (0, 0, '{"product":"p1"}')
    assert json.loads(str(second["value"])) == {"product": "p2", "amount": 2}
    assert (removed["key"], removed["value"]) == ('{"product":"p2"}', None)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("nothing",), "neither a view nor a topic"),
        (("cart", "--from-beginning"), "begins with its rows"),
        (("page_view", "--where", "a=b"), "is not a view"),
    ],
)
def test_a_wrong_use_names_the_cure(view: Published, words: tuple[str, ...], reason: str) -> None:
    ended = truelog("tail", *words, COLUMNS="200")
    assert ended.returncode == 2
    assert reason in ended.stderr


@pytest.mark.parametrize(("setting", "value"), [("TRUELOG_READER_KEY", ""), ("TRUELOG_API_PORT", "0")])
def test_settings_without_the_api_or_its_key_are_named(view: Published, setting: str, value: str) -> None:
    """A pod has the settings of its own process only."""
    ended = truelog("tail", "cart", COLUMNS="200", **{setting: value})
    assert ended.returncode == 3
    assert setting in ended.stderr


def test_a_refusal_of_the_api_is_explained(view: Published) -> None:
    ended = truelog("tail", "page_views")
    assert ended.returncode != 0
    assert "no such view" in ended.stderr
