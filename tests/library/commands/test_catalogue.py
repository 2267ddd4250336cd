"""The catalogue of commands: files that declare none, and two folds of one event type."""

from pathlib import Path

import pytest

from tests.library.commands.decisions import REGISTER
from truelog import Event, Topic
from truelog.commands import catalogue
from truelog.commands.claims import CLAIM
from truelog.schema.event import EventType
from truelog.schema.loading.events import load_events
from truelog.support.settings import PROJECT

ADD = (PROJECT / "include" / "commands" / "add_to_cart.py").read_text()


class LongKey(Event):
    """An event type whose keys have any length."""

    name: str


def test_a_new_file_is_a_new_command(tmp_path: Path) -> None:
    (tmp_path / "put_in_cart.py").write_text(ADD)
    found = catalogue.load(tmp_path)
    assert (list(found.commands), sorted(found.folds)) == (["put_in_cart"], ["cart_event", CLAIM])


@pytest.mark.parametrize("text", ["1 / 0", "COMMAND = 5", "raise SystemExit", "import os; os._exit(0)"])
def test_a_file_without_a_command_stops_no_other_command(tmp_path: Path, text: str) -> None:
    (tmp_path / "bad.py").write_text(text)
    (tmp_path / "put_in_cart.py").write_text(ADD)
    found = catalogue.load(tmp_path)
    assert [*found.commands] == ["put_in_cart"]
    assert "bad.py" in found.refused["bad"]


def test_two_folds_of_one_event_type_are_refused(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(ADD)
    other = ADD.replace("cart.FOLD", "Fold('cart_event', lambda state, event: {})")
    (tmp_path / "two.py").write_text(other.replace("import Command,", "import Command, Fold,"))
    found = catalogue.load(tmp_path)
    assert [*found.commands] == ["one"]
    assert "another fold of cart_event" in found.refused["two"]


def test_a_command_on_an_event_type_without_states_is_refused_alone(tmp_path: Path) -> None:
    """A type that is not registered, and a type whose keys may be too long."""
    other = ADD.replace("cart.FOLD", "Fold(EVENT, lambda state, event: {})").replace(
        "import Command,", "import Command, Fold,"
    )
    for name in ("surprise", "long_key"):
        (tmp_path / f"on_{name}.py").write_text(other.replace("EVENT", repr(name)))
    (tmp_path / "put_in_cart.py").write_text(ADD)
    found, types = catalogue.load(tmp_path), load_events()
    types["long_key"] = EventType("long_key", LongKey, Topic("name", (), 1, "7 days"))
    refused = catalogue.refusals(found, types)
    assert sorted(refused) == ["on_long_key", "on_surprise"]
    assert "surprise is not a registered event type" in refused["on_surprise"]
    assert "a key of at most 500 characters" in refused["on_long_key"]
    assert sorted(catalogue.usable_folds(found, types)) == ["cart_event", CLAIM]


def test_a_command_with_claims_needs_their_event_type(tmp_path: Path) -> None:
    (tmp_path / "register.py").write_text(REGISTER)
    (tmp_path / "put_in_cart.py").write_text(ADD)
    types = load_events()
    del types[CLAIM]
    assert sorted(catalogue.refusals(catalogue.load(tmp_path), types)) == ["register"]


def test_a_fold_has_the_code_of_its_file() -> None:
    folds = catalogue.load().folds
    assert catalogue.code_of(folds["cart_event"]) != catalogue.code_of(folds[CLAIM])
