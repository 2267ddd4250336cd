"""Rule files: a rule as JSON, or in the text form."""

import json

from truelog.patterns import rule as rules
from truelog.patterns import text_form
from truelog.patterns.catalogue import Sources
from truelog.patterns.rule import Declared
from truelog.support.errors import BadInput


def read(text: str, sources: Sources) -> Declared:
    """The declaration in a file, checked against what rules may name.

    Raises:
        BadInput: names the place in the file.
    """
    if len(text) > 4 * rules.MOST_BYTES:
        raise BadInput(f"the file has {len(text):,} characters; {4 * rules.MOST_BYTES:,} are the limit")
    if text.lstrip().startswith("{"):
        return _checked(_parse_json(text), sources)
    document, lines = text_form.parse(text)
    try:
        return _checked(document, sources)
    except BadInput as error:
        raise text_form.located(lines, error) from error


def _checked(document: object, sources: Sources) -> Declared:
    declared = rules.read(document)
    rules.check(declared, sources)
    return declared


def _parse_json(text: str) -> object:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise BadInput(f"line {error.lineno}, character {error.colno}: not valid JSON: {error.msg}") from error
    except RecursionError:
        raise BadInput("the JSON is nested too deeply") from None
