"""Rule files: both forms say the same, and an error names the place."""

import json
import re

import pytest

from tests.library.patterns.rules import SOURCES
from truelog.patterns import files, text_form
from truelog.support.errors import BadInput

TEXT = """RULE falls BY thing
PATTERN a b{2,} .. c
WITHIN 10 minutes
AFTER NEXT
FINAL
LATE AFTER 5 seconds
STEP a ON event
STEP b ON event GAP 3 seconds WHERE value < prev(value)
STEP c ON event WHERE kind <> 'x' AND is_on
ABSENT ON event UNTIL 1 hour WHERE kind = c.kind
SHOW min(b.value) AS lowest
"""


def test_both_forms_say_the_same() -> None:
    declared = files.read(TEXT, SOURCES)

    assert text_form.write(declared) == TEXT
    assert files.read(declared.model_dump_json(), SOURCES) == declared


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("BY thing", "BY person", "line 7: steps.a.on: event has no person"),
        ("WITHIN 10 minutes\n", "", "within: Field required"),
        ("WITHIN 10 minutes", "WITHIN ever", "line 3: within: 'ever' is not a duration"),
        ("b{2,}", "b{2", "line 2: pattern: character 4: '{'"),
        ("b{2,}", "b{3,2}", "line 2: pattern: character 4: the second number"),
        ("b{2,}", "b{9999}", "line 2: pattern: character 4: more than 1,000 repeats"),
        ("a b", "(" * 30 + "a" + ")" * 30 + " b", "line 2: pattern: character 22: more than 20 nested"),
        ("a b", "((b{900}){900}) a", "line 2: pattern: the repeats unroll to more than 5,000"),
        ("a b", "a a", "line 8: steps.b: the pattern does not use this step"),
        ("value < prev(value)", "value < kind", "line 8: steps.b.where: value and kind have different types"),
        ("value < prev(value)", "value <", "line 8: steps.b.where: not valid SQL at character"),
        ("value < prev(value)", "rlike(kind, '(a+)+')", "line 8: steps.b.where: RLIKE"),
        ("value < prev(value)", "value < (select 1)", "line 8: steps.b.where: (SELECT 1) is not allowed"),
        ("value < prev(value)", "(" * 900 + "1" + ")" * 900, "line 8: steps.b.where: the expression"),
        ("value < prev(value)", "- " * 900 + "1 > 0", "line 8: steps.b.where: the expression has more than 400 words"),
        ("value < prev(value)", " or ".join(["is_on"] * 150), "line 8: steps.b.where: the expression has more"),
        ("STEP a ON event", "STOP a ON event", "line 7: 'STOP' begins no clause"),
    ],
)
def test_an_error_names_the_place(old: str, new: str, error: str) -> None:
    with pytest.raises(BadInput, match=re.escape(error)) as raised:
        files.read(TEXT.replace(old, new, 1), SOURCES)

    assert str(raised.value).startswith(error)


def test_an_error_in_json_names_the_place() -> None:
    with pytest.raises(BadInput, match="line 1, character 10"):
        files.read('{"rule": x}'.replace("x", "a b"), SOURCES)
    document = json.loads(files.read(TEXT, SOURCES).model_dump_json()) | {"speed": 1}
    with pytest.raises(BadInput, match="speed: Extra inputs"):
        files.read(json.dumps(document), SOURCES)
