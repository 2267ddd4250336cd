"""What commands print of texts that producers and authors wrote."""

import json
from decimal import Decimal

import pytest

from truelog.cli import explanation_table
from truelog.cli.output import Sheet, print_json, say
from truelog.storage import exact_json
from truelog.support.terminal import visible

TEXTS = (
    "Data engineer [open to work]",
    "[/] Ann [/b] [red] list[str]",
    "日本語 \u00a0 \U0001f469\u200d\U0001f4bb",
)
HOSTILE = "\x1b[31m \x9b \r \u202e \ud800 \b"
ESCAPED = r"\u001b[31m \u009b \u000d \u202e \ud800 \u0008"


def shown(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *texts: str) -> str:
    monkeypatch.setenv("COLUMNS", "200")
    sheet = Sheet("[/head]")
    sheet.add_column("second", no_wrap=True)
    for text in texts:
        sheet.add_row(text, "x")
        sheet.add_title(text)
    sheet.note(texts[0])
    sheet.show()
    return capsys.readouterr().out


def test_texts_are_printed_as_they_are(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    printed = shown(capsys, monkeypatch, *TEXTS)
    assert "[/head]" in printed
    assert [printed.count(text) for text in TEXTS] == [3, 2, 2]
    for text in TEXTS:
        say(text, title=text)
        assert capsys.readouterr().out == f"{text}{text}\n"


def test_characters_that_control_the_terminal_are_visible(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ESCAPED in shown(capsys, monkeypatch, HOSTILE)
    say(HOSTILE, title=HOSTILE, err=True)
    assert capsys.readouterr().err == f"{ESCAPED}{ESCAPED}\n"
    print_json({HOSTILE: [HOSTILE]})
    assert json.loads(capsys.readouterr().out) == {HOSTILE: [HOSTILE]}
    assert json.loads(visible(json.dumps("\x7f\u2028", ensure_ascii=False))) == "\x7f\u2028"


def test_json_keeps_every_digit(capsys: pytest.CaptureFixture[str]) -> None:
    text = '{"a":[90071992547407.93,1.10,-1E+400,9223372036854775807,0.1],"b":{"c":null,"d":true}}'
    print_json(exact_json.read(text))
    assert capsys.readouterr().out == f"{text}\n"
    assert exact_json.read("[NaN, -Infinity]") == ["NaN", "-Infinity"]
    given = {2: Decimal("1.5"), None: (1, 2.5), True: {"x": {3}}}
    assert exact_json.write(given) == '{"2":"1.5","null":[1,2.5],"true":{"x":"{3}"}}'
    assert json.loads(exact_json.write(given)) == json.loads(json.dumps(given, default=str))


def test_an_explanation_shows_every_digit_of_a_value() -> None:
    [value] = exact_json.read("[90071992547407.93]")
    assert explanation_table._text(value) == "90071992547407.93"
    assert str({"amount": value}) == "{'amount': 90071992547407.93}"
