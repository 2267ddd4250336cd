"""`truelog patterns list`, `show` and `backtest`: what people and scripts read of rules that a view has counted."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from rules.sources import SOURCES
from tests.beds.archived import Archived
from tests.command import answer, truelog
from tests.library.click_rules import MATCHES, PAIR, definition, retire, set_rule
from truelog.batch import batch_context
from truelog.cli.rules import patterning
from truelog.patterns import files
from truelog.support.settings import PROJECT

VIEW = "from tests.library.click_rules import MATCHES\nVIEW = MATCHES\n"
SECOND = 3 * 3600


def a_retired_rule_with_a_match(ground: Archived) -> None:
    ground.tick(SECOND - 10)
    set_rule(ground, "pair", **PAIR)
    ground.click(0, [("a", "1", SECOND), ("a", "5", SECOND + 1)])
    retire(ground, "pair")
    ground.tick(SECOND + 100)
    ground.stream()


pytestmark = pytest.mark.ground(view=MATCHES, filled=a_retired_rule_with_a_match)


@pytest.fixture
def folder(ground: Archived, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The folder of the ground's view. The commands read this view, in the tests' Spark session."""

    @contextmanager
    def opened(*_: Any, **__: Any) -> Iterator[tuple[Any, Any]]:
        yield ground.lab.context, ground.compiled

    monkeypatch.setattr(patterning, "MATCHES", ground.compiled.name)
    monkeypatch.setattr(batch_context, "open_view", opened)
    (tmp_path / f"{ground.compiled.name}.py").write_text(VIEW)
    return str(tmp_path)


def test_the_schema_of_a_rule_accepts_the_rules_that_come_with_the_platform() -> None:
    schema = answer("patterns", "schema")
    assert json.loads(truelog("patterns", "schema").stdout) == schema
    validator = Draft202012Validator(schema)
    for path in (PROJECT / "include" / "rules").glob("*.rule"):
        declared = files.read(path.read_text(), SOURCES)
        validator.validate(json.loads(declared.model_dump_json(exclude_defaults=True)))
    assert not validator.is_valid({"rule": "r", "by": "page", "pattern": "a", "steps": {"a": {"on": "click"}}})


def test_rules_with_their_matches_and_what_one_would_have_found(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRUELOG_VIEWS_FOLDER", folder)
    listed = answer("patterns", "list")
    [rule] = listed["rules"]
    assert (rule["rule"], rule["version"], rule["in_force"], rule["outcomes"]) == ("pair", 1, False, {"found": 1})
    assert listed["oversized_entities"] == 0
    assert "1 found" in truelog("patterns", "list").stdout

    shown = answer("patterns", "show", "pair")
    assert [each["offset"] for each in shown["matches"][0]["events"]] == [0, 1]
    assert "PATTERN a b" in truelog("patterns", "show", "pair").stdout
    assert truelog("patterns", "show", "other").returncode == 2

    (tmp_path / "pair.rule").write_text(definition("pair", **PAIR))
    asked = ("patterns", "backtest", str(tmp_path / "pair.rule"), "--from", "2026-03-01T02:00:00Z")
    found = answer(*asked)
    assert (found["matches"], found["days"]) == (1, {"2026-03-01": {"found": 1}})
    assert "1 matches among 2 events of 1 entities" in truelog(*asked).stdout
