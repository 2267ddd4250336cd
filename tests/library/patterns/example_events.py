"""The rule and the events of a public example."""

from tests.library.patterns.public_examples import PublicExample
from tests.library.patterns.rules import a_rule, an_event
from truelog.patterns.matcher import Event
from truelog.patterns.rule import Rule


def rule_of(example: PublicExample) -> Rule:
    fields = {"within": example.within, "after": example.after, "show": dict(example.shown)}
    return a_rule(example.pattern, dict(example.where), **fields)


def events_of(example: PublicExample) -> list[Event]:
    return [an_event(number, value, number * example.every) for number, value in enumerate(example.values, 1)]
